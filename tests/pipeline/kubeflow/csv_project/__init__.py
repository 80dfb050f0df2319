"""Somebody's project, as TFX's templates lay it out: stock components over a CSV file."""
