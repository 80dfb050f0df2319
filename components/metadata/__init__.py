"""ML Metadata's file, and the output folders that it knows."""
