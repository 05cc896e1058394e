"""The agent that a person uses: models, places, sessions of use, undo, and the faces over them (headless, terminal, several at once)."""
