"""Tasks, one file each: values of ``task.name``."""
