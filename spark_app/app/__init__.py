"""Start, run, stop, exit: the command line (`cli`), its `text`, the pipeline, the life cycle, the shell."""
