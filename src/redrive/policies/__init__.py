"""Policies and inferences that ship with redrive; each enters by the door of any plug-in."""
