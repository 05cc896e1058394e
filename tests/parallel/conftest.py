"""The modules of this folder are importable by their names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
