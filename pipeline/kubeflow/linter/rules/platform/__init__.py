"""Rules for the platform document: Kubernetes settings of each pod."""
