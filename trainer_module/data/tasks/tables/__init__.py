"""Tasks on tables: columns of numbers and categories."""
