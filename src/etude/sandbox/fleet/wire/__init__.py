"""A host in another process: what is asked travels as names and values, and so do answers and typed errors."""
