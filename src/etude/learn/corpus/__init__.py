"""Code and text in, packed tokens out."""
