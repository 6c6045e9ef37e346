"""The running app: it connects the packages and returns the exit code of a run; also the shell and the class training.

It stands above all other packages: it starts the streaming query, from which every record comes.
"""
