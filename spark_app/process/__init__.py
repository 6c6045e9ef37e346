"""One run of the process: how it starts, waits, is watched and ends."""
