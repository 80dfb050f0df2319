"""Object stores: file systems for TFX and Beam, folders, leases."""
