"""The hint that a flagged turn would have received: hints from a session's own facts, and where in the tokens they belong (`docs/rewards.md`)."""
