"""The live board: a run's files as pages that follow it, served on loopback and read-only (`docs/report.md`)."""
