"""Augmentations, one file each: names in ``train.augment``."""
