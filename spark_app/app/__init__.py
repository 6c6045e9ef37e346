"""The running app: it wires the stages and decides how the process ends."""
