"""What scores and costs of attempts mean, for bench and report alike, pure: arrays in, numbers out. `docs/bench.md` explains them."""
