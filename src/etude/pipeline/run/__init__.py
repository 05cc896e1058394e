"""The stage graph and its resume ledger: what `etude run` does."""
