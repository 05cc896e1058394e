"""Generation runs (`etude tasks make`): from a list of projects to a balanced folder of proved tasks, resumable at any
point."""
