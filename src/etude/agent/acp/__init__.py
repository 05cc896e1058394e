"""The agent for editors: an Agent Client Protocol server (agentclientprotocol.com) over the one harness."""
