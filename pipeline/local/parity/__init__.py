"""Examples for ``stagecraft parity``."""
