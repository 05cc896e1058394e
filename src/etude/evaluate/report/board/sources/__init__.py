"""Where rows of the index come from: each source reads one part of a run and says what is new."""
