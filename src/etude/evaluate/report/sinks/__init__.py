"""Metrics of a run sent on to a tracker, from beside it: a collector that dies touches no training."""
