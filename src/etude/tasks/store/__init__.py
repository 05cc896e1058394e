"""A folder of tasks: an index, each project's tree once, and of a task only what it changes."""
