"""Ways to look good without doing the work, as final files; each must score 0 on every task (promise 10)."""
