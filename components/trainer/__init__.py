"""The Trainer, which starts the processes of a topology here or as a job on a cluster."""
