"""What a training goes on from after it was stopped."""
