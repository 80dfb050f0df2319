"""Pipeline parallelism: stages of a model, and the order in which they take microbatches.

The engine ``grid`` runs them (``engines/replica_pipeline.py``). The cuts are in ``partition/``.
"""
