"""Three prompts a task: terse, ambiguous and typo-ridden, full. By rules from what the generator knows, or by any policy, and checked."""
