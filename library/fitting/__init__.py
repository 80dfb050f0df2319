"""Trains Keras models and data of the caller's: ``fit``, ``engine``, ``plan``, ``check_parity``."""
