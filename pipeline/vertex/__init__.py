"""Vertex AI Pipelines, with TFX's runner and entrypoint."""

from stagecraft.schemas import moved

moved.install()
