"""The file of AnomalyGate's output. Imports no TFX."""

FILE_NAME = "SchemaDiff.pb"
"""ExampleValidator's name and layout (a folder per split), so that its tools can read it."""
