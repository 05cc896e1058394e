"""Metrics and progress: one writer, JSONL on disk, a live terminal view."""
