"""From installed projects to tasks: one generator a file (or a folder of operators), each with its own proof that a task is one."""
