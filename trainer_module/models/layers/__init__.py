"""Side effects of Keras layers in training: random numbers, assignments, dtypes."""
