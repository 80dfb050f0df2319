"""The entrypoint of a step's container, in place of TFX's entrypoint for Vertex.

It restores values that the open-source backend omits or changes, runs the executor with TFX's code,
and restores addresses.
"""
