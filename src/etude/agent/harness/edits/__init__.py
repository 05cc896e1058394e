"""Edits of text: where a search text stands, what a patch means, what was changed."""
