"""Pipeline parallelism: stages of a model, and the order in which they take microbatches.

``partition`` cuts a model; :mod:`..planning` chooses the cuts, by :mod:`..models.costs`. The engine
of the grid runs the stages (``engines/replica_pipeline.py``).
"""
