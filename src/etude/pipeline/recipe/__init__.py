"""TOML in, merged and validated recipe out; each room owns its settings, this room composes them."""
