"""Projects that ``stagecraft init`` writes, and their templates."""
