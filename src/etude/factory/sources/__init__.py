"""Projects that tasks are made of: the list of a file, and each fetched as it was released."""
