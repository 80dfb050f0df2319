"""Code that all folders share: errors, registries, settings, secrets, names, public names."""
