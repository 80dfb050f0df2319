"""The drill: faults are injected into real trainings, and what comes of each is measured."""
