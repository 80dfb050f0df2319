"""The Beam runners that settings name: one file each."""
