"""TrainingReport: collects :mod:`report_data` from artifacts, and renders it as page, summary,
model card and metrics.
"""
