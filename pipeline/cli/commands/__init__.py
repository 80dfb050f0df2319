"""The commands of ``stagecraft``, one file each."""
