"""Background agents: each runs in a separate process, with its own git worktree, branch and sandbox."""
