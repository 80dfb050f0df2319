"""What the data is: features, shapes, dtypes and class names."""
