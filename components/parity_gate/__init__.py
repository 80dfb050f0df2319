"""The gate that stops a pipeline whose topology does not compute the same as one device."""

JSON, MARKDOWN = "parity.json", "parity.md"  # the files of its output
