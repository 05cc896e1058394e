"""`etude agent` and `etude agents`: the agent in any folder, alone or several at once."""

from etude.cli.agent.agent import agent
from etude.cli.agent.agents import app
from etude.cli.agent.options import AgentCommand

__all__ = ["AgentCommand", "agent", "app"]
