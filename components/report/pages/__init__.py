"""A report as HTML, Markdown and a model card."""
