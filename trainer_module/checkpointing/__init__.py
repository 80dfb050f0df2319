"""Checkpoints, and the locks and leases that protect them."""
