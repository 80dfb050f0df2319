"""What the commands print: text, tables, live views and JSON."""
