"""What ships for policies to stand on: readers of shell commands and of SQL."""
