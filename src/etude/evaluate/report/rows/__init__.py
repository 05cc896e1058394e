"""Rows that a run's files hold: lines, training steps, outcomes and infrastructure errors."""
