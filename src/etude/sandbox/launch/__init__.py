"""Sandboxes that another program starts for us: bubblewrap, podman, or nobody."""
