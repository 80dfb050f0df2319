"""The processes of a training: roles, events, supervision."""
