"""Use cases: what each verb does, without a terminal."""
