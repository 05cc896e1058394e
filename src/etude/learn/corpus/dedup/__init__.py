"""Copies found: exact and near duplicates over a library of any size, in flat memory."""
