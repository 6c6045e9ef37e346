"""One table of the lake."""
