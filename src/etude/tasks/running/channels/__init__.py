"""One runner a file: how it is started so that its results can be believed, and what its report says."""
