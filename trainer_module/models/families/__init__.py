"""Families of models that ``train.model`` names, one file each."""
