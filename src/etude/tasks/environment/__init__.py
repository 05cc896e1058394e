"""What the sandboxes of a real project's tasks start from: an installed snapshot, and the task's own files over it."""
