"""Hygiene counters: how cleanly an agent worked, in numbers; a pure function of its session, independent of its recorder (`docs/counters.md`)."""
