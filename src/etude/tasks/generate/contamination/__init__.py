"""Did a foreign model see a task's project before? Probes per task, and the flag that they put into its metadata."""
