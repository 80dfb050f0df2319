"""Engines compute training steps on the devices of a topology.

``gradient_sums`` sums gradients over replicas and workers, for both: ``grid_engine`` for replicas,
stages and shards, and ``strategy_engine`` for strategies of ``tf.distribute``.
"""
