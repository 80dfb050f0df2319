"""What a training shows of itself: progress, curves, timelines and profiles."""
