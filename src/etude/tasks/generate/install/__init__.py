"""Auto-install in two stages: somebody sets goals, somebody else builds until three of them behave, and a recipe repeats it."""
