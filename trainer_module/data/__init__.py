"""Reads files of examples and turns them into batches."""
