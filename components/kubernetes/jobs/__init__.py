"""The objects of a training on a cluster: pure functions of what is asked for."""
