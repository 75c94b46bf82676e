"""Runs what is not trusted where it can change nothing and reach nobody."""
