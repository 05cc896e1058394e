"""The runner in C: the wire of docs/sandbox-protocol.md without an interpreter; an idle one holds some 64 KiB of its own."""
