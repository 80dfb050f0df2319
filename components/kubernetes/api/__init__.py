"""The Kubernetes API: the only folder that imports its client."""
