"""Parity: any topology computes what one device computes."""
