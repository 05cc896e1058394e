"""A file of this machine put into a project's folder for as long as it is read: linked, or copied where links can't be made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def place(source: Path, target: Path) -> None:
    """`target` has the bytes of `source`; folders on the way are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, somebody else's file, or links are forbidden
        shutil.copyfile(source, target)
