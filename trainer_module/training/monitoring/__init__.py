"""Progress, learning curves, timelines and profiles of a training."""
