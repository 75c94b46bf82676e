"""The sandbox: what keeps a user's code from touching the world."""
