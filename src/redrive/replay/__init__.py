"""The replays, as values that are stepped."""
