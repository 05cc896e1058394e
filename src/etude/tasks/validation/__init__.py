"""Turns changes into tasks and proves them by running: reference, no change, cheats, flaky tests."""
