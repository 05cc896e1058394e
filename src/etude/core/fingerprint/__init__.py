"""What a text is known by where it must not be learnt from: hashes of its tokens, and the files in which suites publish them."""
