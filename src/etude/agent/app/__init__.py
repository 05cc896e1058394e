"""The agent as an app: models, workspaces, sessions and undo, and its user interfaces (headless, terminal, background agents)."""
