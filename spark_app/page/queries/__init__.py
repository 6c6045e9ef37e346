"""SQL over the tables of a lake, in a process of its own that sees nothing else and that a time limit can end."""
