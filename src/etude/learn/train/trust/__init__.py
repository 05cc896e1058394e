"""How far the policy step trusts tokens that other weights sampled: one file an option, one of them chosen by `rl.update.trust.kind`."""
