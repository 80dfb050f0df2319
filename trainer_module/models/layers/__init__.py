"""What Keras layers do in training, besides computing outputs, and what an engine makes of it."""
