"""Puts the models and tools of agent libraries at the seams of a session; a library a file.

Each is thin and optional: it needs its library, which `redrive` itself never imports.
"""
