"""Semantic code search: tree-sitter chunks ranked by words, symbols and, if given, embeddings; one index for product and training alike.

Start at `index.Index`; `overlay.Overlay` is a session's own view of it, `service` and `client` serve it outside the sandbox.
"""
