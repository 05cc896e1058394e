"""Tasks as a service during RL: a template that the policy has mastered is deepened while the run goes on."""
