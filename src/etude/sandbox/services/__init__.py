"""What runs beside an agent's shell: declared processes with health checks, inside the sandbox' own network."""
