"""Runs a compiled pipeline on this machine as the backend runs it on a cluster.

``driver``, ``launcher`` and ``emissary`` port the published code of Kubeflow Pipelines 2.17 and
Argo. They were not compared with a live cluster.
"""
