"""What a token of a text is."""

SEPARATORS = {"characters": "", "words": " "}
"""Unit -> what stands between two of them."""
