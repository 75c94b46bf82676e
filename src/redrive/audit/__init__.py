"""The closure audit: whether the record is sufficient, step by step."""
