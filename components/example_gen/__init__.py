"""ExampleGens for the sources of ``data:``, and spans; ``kinds/`` has one per form of data."""
