"""The drill: injects faults into real trainings, and measures how they recover."""
