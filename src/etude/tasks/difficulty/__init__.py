"""How hard a task is, measured: by its reference, by what a scripted solver has to read, by rollouts where there are any."""
