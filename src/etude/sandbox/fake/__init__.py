"""Sandboxes in memory, with costs and faults of their own choosing: for tests of what uses sandboxes, and for the simulated fleet."""
