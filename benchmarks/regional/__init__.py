"""Two regions on one machine: network namespaces of our own, a long thin link between them, what runs at either end."""
