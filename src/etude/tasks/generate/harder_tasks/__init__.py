"""Harder tasks during RL: when the policy has mastered a template, harder variants of its tasks are served."""
