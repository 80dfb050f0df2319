"""The gate that stops a pipeline on data that does not fit its schema."""

FILE_NAME = "SchemaDiff.pb"
"""Its output, with ExampleValidator's name and layout (a folder per split) for its tools."""
