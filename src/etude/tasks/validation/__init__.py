"""From a change to a task, shown by running that it is one: reference, nothing, cheats, flaky tests."""
