"""Local runs: one process runs the pipeline, another one shows and supervises it."""
