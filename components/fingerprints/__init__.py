"""Fingerprints of code, files and settings, for cache keys."""
