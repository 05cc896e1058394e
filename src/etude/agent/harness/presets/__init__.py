"""Presets: names, shapes and prompts of the tools an agent gets; data in TOML, and what reads it."""
