"""The data: features, shapes, dtypes and class names."""
