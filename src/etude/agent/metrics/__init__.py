"""Hygiene counters: how cleanly an agent worked, in numbers; a pure function of its session, whoever recorded it (`docs/counters.md`)."""
