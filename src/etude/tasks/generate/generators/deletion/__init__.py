"""Feature deletion: a tested feature goes out of a project with all that it leaves behind, and the agent puts it back."""
