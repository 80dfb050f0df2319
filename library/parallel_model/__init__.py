"""``parallelize``: Keras's own ``fit``, ``evaluate`` and ``predict`` on any topology."""
