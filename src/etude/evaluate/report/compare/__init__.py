"""Two runs side by side: what was set otherwise, what came of it on the same tasks, curves over each other, sessions step by step."""
