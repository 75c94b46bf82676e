"""Stores: where sessions lie."""
