"""Runs a compiled pipeline on this machine, as the backend would run it on a cluster.

Driver, launcher and Argo's emissary of Kubeflow Pipelines 2.17, as their published code has them:
see ``driver``, ``launcher`` and ``emissary``. No live cluster was compared with.
"""
