"""The Kubernetes API: the only folder that knows its client."""
