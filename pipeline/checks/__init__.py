"""Checks that need no pipeline: they run before a run is recorded."""
