"""Records a live agent, and serves a recorded one to itself again."""
