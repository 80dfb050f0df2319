"""The training loop, from the first step to the exported model."""
