"""Suites, participants, judges, and reports."""
