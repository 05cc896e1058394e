"""Where tasks and sessions come from: exercise generators and session collection."""
