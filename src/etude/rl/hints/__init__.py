"""What a flagged turn would have been told: hints from a session's own facts, and where in the tokens they belong (`docs/rewards.md`)."""
