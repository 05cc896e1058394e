"""The lab next to this file is importable by its name, and so is the endpoint of the tests of the command line."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "cli")]  # tests are no package: this is how they share a module
