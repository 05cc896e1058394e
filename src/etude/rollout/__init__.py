"""One attempt at a task: sandbox, harness, grade in a fresh sandbox; infra faults retried, never scored."""
