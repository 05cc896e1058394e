"""What people really ask of agents, counted by category, so that RL and benches draw tasks in the same proportions."""
