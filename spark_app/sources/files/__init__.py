"""Files as a source: which files of a folder are new, what they contain, and which were ingested. No Spark."""
