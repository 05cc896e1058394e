"""Broken files that build, test, check and serve a real project, and logs to read."""
