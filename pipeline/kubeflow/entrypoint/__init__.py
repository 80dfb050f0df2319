"""What a step's container runs, in place of TFX's own entrypoint for Vertex.

It restores what the open-source backend leaves out or writes differently, runs the executor
through TFX's own code, and puts addresses back.
"""
