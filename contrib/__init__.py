"""Parts that a training can do without. A reader of the core may leave them out.

The core imports them when a setting, a command or a public name asks for one.
"""
