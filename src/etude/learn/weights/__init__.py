"""Lossless weight sync: delta codec, chain and stores; no opinion on when."""
