"""Comparison of two paths, and what a difference means."""
