"""The verbs, a few to a file."""
