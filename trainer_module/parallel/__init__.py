"""The topology of a training: its settings, their rules, its devices and its processes."""
