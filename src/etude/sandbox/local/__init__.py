"""Sandboxes of this machine, made from namespaces by ourselves."""
