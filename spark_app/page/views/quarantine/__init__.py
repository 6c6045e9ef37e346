"""The records in quarantine, each with its bytes, and their replay."""
