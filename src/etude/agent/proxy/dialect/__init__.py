"""The formats that agents speak: their requests as an `Ask`, our answers as theirs, one module a format."""
