"""Turns what TFX compiles into what the open-source backend runs."""
