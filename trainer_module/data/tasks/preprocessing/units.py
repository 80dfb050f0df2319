"""Units of a text that are its tokens."""

SEPARATORS = {"characters": "", "words": " "}
"""Unit -> what stands between two of them."""
