"""What the library's records become before tokens: fill-in-the-middle, project strings, changes."""
