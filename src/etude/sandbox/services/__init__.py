"""Services of a task: declared processes with health checks that run next to the agent's shell, inside the sandbox' own network."""
