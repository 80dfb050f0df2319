"""How each kind of layer is divided over devices: one file for each."""
