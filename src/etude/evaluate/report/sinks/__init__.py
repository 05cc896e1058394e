"""Sends a run's metrics to a tracker, from a separate process: a collector that dies touches no training."""
