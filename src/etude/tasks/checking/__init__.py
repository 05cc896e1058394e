"""A folder of tasks is checked: references, nothing done, cheats, leaks, flakiness; `etude tasks check`."""
