"""Policies that ship with redrive, and the doors to policies of others."""
