"""Planning for sessions that play each arm at most once."""
