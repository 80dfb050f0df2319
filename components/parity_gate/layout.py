"""The files of ParityGate's output. Imports no TFX."""

JSON, MARKDOWN = "parity.json", "parity.md"
