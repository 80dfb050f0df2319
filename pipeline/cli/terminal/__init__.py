"""Output of the commands: text, tables, live views and JSON."""
