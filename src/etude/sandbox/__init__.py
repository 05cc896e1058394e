"""Isolated machines for agents. `protocol` is the one interface; back ends build it, nobody else knows which one serves."""
