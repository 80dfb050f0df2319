"""The gate that stops a pipeline whose topology does not compute the same as one device."""
