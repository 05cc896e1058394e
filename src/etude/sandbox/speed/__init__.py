"""How fast sandboxes are here, beside a fork and exec of this machine and beside its other tools, in the same minutes."""
