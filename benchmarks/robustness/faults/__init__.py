"""Faults in small training runs: what ``drill.py`` and ``soak.py`` inject."""
