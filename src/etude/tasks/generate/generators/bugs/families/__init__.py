"""The operators, a family a file: what careless people get wrong, in Python and in JavaScript."""
