"""Optimizers, one file each: values of ``train.optimizer``."""
