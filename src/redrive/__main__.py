"""Lets `python -m redrive` do what the console script does."""

from redrive.cli.entry import main

main()
