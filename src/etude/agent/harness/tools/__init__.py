"""The agent's tools: one file each, its description in Markdown beside it, all work done through the workspace seam."""
