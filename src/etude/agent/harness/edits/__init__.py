"""Edits of text: where a search text is, what a patch means, what was changed."""
