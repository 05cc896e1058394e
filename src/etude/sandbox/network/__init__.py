"""The policed way out of a sandbox: the room `egress` put to sandboxes of a pool."""
