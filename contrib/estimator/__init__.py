"""Estimators without TensorFlow's: their public names are in ``stagecraft.estimator``."""
