"""Searches the topologies of some devices for the fastest."""
