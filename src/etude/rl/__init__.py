"""Asynchronous reinforcement learning: reconciler, groups, rewards, advantages, exact resume, placement on Ray."""
