"""Running on this machine: a process that runs the pipeline, and one that watches over it."""
