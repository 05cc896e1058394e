"""A task's tests run in a fresh sandbox, and what is believed of their reports."""
