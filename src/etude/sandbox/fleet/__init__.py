"""Many hosts of sandboxes as one pool: placement, leases, retries, layers shipped where they lack. `docs/fleet.md` tells it whole."""
