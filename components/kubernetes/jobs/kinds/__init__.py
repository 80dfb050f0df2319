"""The kinds of cluster jobs: one file each."""
