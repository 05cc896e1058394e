"""One command, one thin file per sub-command."""
