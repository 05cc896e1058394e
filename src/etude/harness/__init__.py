"""The agent: loop, tools, prompts, self-summarization, hygiene counters, sessions. Knows sandbox, policy, chat, trace; never engine or tasks."""
