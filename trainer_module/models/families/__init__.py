"""The models that `train.model` knows by name."""
