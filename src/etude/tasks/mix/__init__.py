"""Categories of real requests to agents, counted, so that RL and benchmarks draw tasks in the same proportions."""
