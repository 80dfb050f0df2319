"""A model as a graph of layers, cut into stages."""
