"""What the knowledge phase was worth, measured: perplexity, loss by position, retrieval, drafts."""
