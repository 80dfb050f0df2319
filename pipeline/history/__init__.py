"""Finds, reads and reports past runs."""
