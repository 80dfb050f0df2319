"""The folder that a Trainer step shares with the pods of its job."""
