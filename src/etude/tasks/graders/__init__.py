"""One grader a file: each says whether the final files of an attempt do what its kind of task asked for."""
