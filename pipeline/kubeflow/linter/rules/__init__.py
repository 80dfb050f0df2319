"""The rules: each module checks one part of a pipeline."""
