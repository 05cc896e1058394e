"""The runner in C: the wire of docs/sandbox-protocol.md without an interpreter, a third of a MiB for an idle sandbox."""
