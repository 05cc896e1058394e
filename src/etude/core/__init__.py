"""What every package may use: traces, events, redaction, fingerprints, statistics, bounded readers. No torch, no Ray, no sandbox."""
