"""What happened: messages, exact tokens with their provenance, sessions on disk, and the training samples cut from them."""
