"""What a session left in a repository: git notes, Agent Trace records, opt-in local signals, and how all of it is forgotten."""
