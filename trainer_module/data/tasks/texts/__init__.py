"""Texts whose tokens come from a tokenizer of KerasHub."""
