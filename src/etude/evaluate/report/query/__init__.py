"""Rows of a run's files for people and scripts: rollouts, steps, outcomes, events, read one at a time."""
