"""Everything that touches tokens or weights."""
