"""Lets the tests of this folder share how a project and a library are made."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
