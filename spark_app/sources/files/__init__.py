"""Files as a source: which files of a folder are new, what they hold, and which were taken. No Spark."""
