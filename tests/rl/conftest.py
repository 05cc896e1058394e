"""The world beside this file is importable by its name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
