"""The processes of a training: start, liveness, events, ends."""
