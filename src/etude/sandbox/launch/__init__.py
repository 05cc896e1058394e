"""Sandboxes that another program starts for us (bubblewrap, podman), or that start without one."""
