"""TrainingReport: what a run came to, as a page for people and as KFP's own artifacts.

Artifacts are read into :mod:`facts`; page, summary, model card and metrics are made from those.
"""
