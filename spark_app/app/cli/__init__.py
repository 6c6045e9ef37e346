"""The command `protolake`: parses the command line, runs a command, and exits with its code."""
