"""Checks of the platform document: what each pod gets from Kubernetes."""
