"""Start, run, stop, exit: the command line (`cli`), its `text`, the `process`, the pipeline, the shell."""
