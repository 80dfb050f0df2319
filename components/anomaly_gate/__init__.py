"""The gate that stops a pipeline on data that does not fit its schema."""
