"""Pipeline specs as protocol buffers: fields, types, quantities."""
