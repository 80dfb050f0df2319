"""Vertex AI Pipelines, with TFX's runner and entrypoint."""
