"""The rules: each module checks one part of a pipeline.

``documents`` and ``pipeline``, one folder up, refuse what cannot be read, or is no graph.
"""
