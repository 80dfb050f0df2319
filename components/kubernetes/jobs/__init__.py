"""The objects of a training on a cluster, made by pure functions of the request."""
