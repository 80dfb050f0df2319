"""What failures, stragglers and checkpoints cost of a long training."""
