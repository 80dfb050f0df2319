"""From files of examples to batches on the devices."""
