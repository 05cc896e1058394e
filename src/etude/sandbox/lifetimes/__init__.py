"""From the wish for a sandbox to its end: whose turn it is, how long it may live, and what is written down about it."""
