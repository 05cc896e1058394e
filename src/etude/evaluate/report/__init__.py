"""Reads run files only: one-file HTML, plots. Imports neither torch nor ray."""
