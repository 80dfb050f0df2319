"""The entrypoint of a step: restores what the backend omits or changes, and runs TFX's code."""
