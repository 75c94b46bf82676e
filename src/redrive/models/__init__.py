"""Models: who answers a model request."""
