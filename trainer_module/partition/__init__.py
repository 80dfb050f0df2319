"""Cuts of a model into pieces, and the costs of the pieces; :mod:`..planning` chooses the cuts."""
