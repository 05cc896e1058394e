"""Several agents at once: each a process of its own in a git worktree, a branch and a sandbox of its own."""
