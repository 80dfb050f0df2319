"""Our pipeline on Vertex AI Pipelines, as TFX's own runner and entrypoint take it there."""
