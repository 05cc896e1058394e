"""The agent: loop, tools, prompts, self-summarization, sessions. `build_agent` is the only constructor (promise 1).

It imports workspace, sandbox, policy, chat, trace and metrics, but never the engine or tasks.
"""
