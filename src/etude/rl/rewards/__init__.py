"""What a rollout earns: components by name, their weights at a step, what was mixed, and the alarms over them (`docs/rewards.md`)."""
