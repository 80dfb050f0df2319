"""The gate that stops a pipeline on data that does not fit its schema."""

FILE_NAME = "SchemaDiff.pb"
"""The file of its output. Name and layout (a folder per split) are ExampleValidator's, so that its
tools can read it."""

EARLIER = "earlier_statistics"
"""The optional input: statistics of the last run whose data passed."""

COLUMNS = "columns"
"""The property of its output with the columns that are new, or without values, as text."""

UNSEEN = "unseen_labels"
"""The property of its output with labels that the train split lacks, as text."""
