"""The `stagecraft` command: one file a command; console.py is the only one that prints."""
