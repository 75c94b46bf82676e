"""Graders that ship: a kind each, and each comes in by the plug-ins' door."""
