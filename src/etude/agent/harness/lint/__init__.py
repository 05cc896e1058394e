"""Linters of the workspace: which it configures, what they find, and what an edit changed of that."""
