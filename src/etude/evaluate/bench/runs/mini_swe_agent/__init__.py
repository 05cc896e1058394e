"""mini-swe-agent at the same tasks with the same policy: its loop, prompts and client unchanged, its commands run in the task's sandbox."""
