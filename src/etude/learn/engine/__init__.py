"""Sampling: continuous batching, KV cache, hot weight swap."""
