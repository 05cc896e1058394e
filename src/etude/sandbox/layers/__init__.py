"""Immutable, content-addressed layers of files, and snapshots made of them, in a folder (docs/layers.md). Knows nothing of sandboxes."""
