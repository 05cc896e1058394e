"""Logs of other agents as our sessions: strict about structure; what has no place of its own is kept under `foreign`."""
