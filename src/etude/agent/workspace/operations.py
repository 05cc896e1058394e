"""What a workspace adds to a machine's operations: where a session keeps whole outputs, and the word for a path that leads out."""

from __future__ import annotations

from etude.sandbox.errors import UserError

# What a session keeps in addition to the files: whole outputs of commands. Agents and shells both name it $OUTPUTS. The folder exists on
# every machine, wherever it really lies.
OUTPUTS = "$OUTPUTS"
OUTPUTS_FOLDER = "/tmp/etude-outputs"


class PathOutside(UserError):
    """A path that leads out of a folder that may not be left."""
