"""The files of a lake, and the disk they are on."""
