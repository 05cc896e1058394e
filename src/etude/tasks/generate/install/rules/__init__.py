"""The embedded pair: goals and steps by rules from what projects write about themselves, and repairs from what failed."""
