"""Past runs: found, read and reported."""
