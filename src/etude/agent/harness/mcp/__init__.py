"""Tools of MCP servers (modelcontextprotocol.io) for the agent a person uses; off in training and benches."""
