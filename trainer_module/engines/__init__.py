"""Engines compute training steps on the devices of a topology.

``grid`` sums gradients over replicas by ``collectives``; ``replicated`` by ``tf.distribute``.
"""
