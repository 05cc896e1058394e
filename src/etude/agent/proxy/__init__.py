"""Capture of foreign agents: an endpoint that an unmodified agent is pointed at, and whose every session is training data.

`server.py` speaks HTTP, `dialect/` the wire formats, `retries.py` tells a request from its repetition, `session.py` asks the
policy and records, `graph.py` knows which conversation a request goes on with, `tokens.py` keeps promise 2.
"""
