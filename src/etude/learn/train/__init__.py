"""Learning: one loop, losses, optimizers, checkpoints; each kind of training is one small file."""
