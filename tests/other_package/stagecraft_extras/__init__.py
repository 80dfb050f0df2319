"""Entries that another package adds to the registries."""
