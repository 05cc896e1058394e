"""Tasks out of recorded sessions: the request as typed, and the commit that came of it."""
