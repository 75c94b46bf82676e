<<<<<<< HEAD
"""Policies and inferences that ship with redrive; each enters by the door of any plug-in."""
=======
"""What ships for policies to stand on: readers of shell commands and of SQL."""
>>>>>>> h-shell
