"""The agent's tools: one file each, its description in Markdown next to it, all work done through the workspace seam."""
