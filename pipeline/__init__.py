"""Settings, the pipeline, its runners and the command line."""
