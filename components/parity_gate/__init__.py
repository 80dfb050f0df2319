"""The gate that stops a pipeline whose topology does not compute what one device does."""
