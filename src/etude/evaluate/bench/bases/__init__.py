"""Choosing a base: checkpoints of either family compared on one's own code, each by its own tokenizer (`etude base compare`)."""
