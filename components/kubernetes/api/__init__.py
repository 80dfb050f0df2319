"""The Kubernetes API: connections, objects, pods and their logs."""
