"""The agent: loop, tools, prompts, self-summarization, sessions (promise 1: `build_agent` is the only way to one).
Knows workspace, sandbox, policy, chat, trace, hygiene; never engine or tasks."""
