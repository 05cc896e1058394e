"""Bugs in real packages, graded by the packages' own tests: a small suite for any policy, ours or behind an endpoint."""
