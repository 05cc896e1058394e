"""Suites: which tasks a bench asks, frozen under a name and a version; read, made from sessions and tasks, imported."""
