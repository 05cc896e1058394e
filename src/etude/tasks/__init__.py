"""The practice task: its format, importers, graders, leak audit and verdicts."""
