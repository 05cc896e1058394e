"""Small generated repositories with one thing to do in each, made lazily and purely from (level, split, number)."""
