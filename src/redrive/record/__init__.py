"""The record: events, the index of a session, its paths, and tool evidence."""
