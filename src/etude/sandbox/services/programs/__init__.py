"""Programs that run inside sandboxes, on the standard library alone; they import nothing of this package."""
