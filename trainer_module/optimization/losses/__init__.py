"""Losses, one file each: values of ``train.loss``."""
