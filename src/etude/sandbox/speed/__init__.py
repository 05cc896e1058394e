"""How fast sandboxes are here, compared with a fork and exec of this machine and with its other tools, in the same minutes."""
