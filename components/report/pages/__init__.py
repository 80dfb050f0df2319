"""The facts of a run as HTML, Markdown and a model card."""
