"""Isolated machines for agents. `protocol` is the one interface. Backends implement it, and no other module knows which one serves."""
