"""redrive re-drives recorded AI-agent sessions and returns a verdict that can be defended."""

__version__ = "0.1.0"
