"""Snapshots, forks and images of live sandboxes, over the room `layers` (docs/layers.md)."""
