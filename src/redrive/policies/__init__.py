"""Policies that ship, and what they stand on: readers of shell commands, of SQL, of hooks."""
