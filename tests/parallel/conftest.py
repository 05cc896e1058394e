"""The modules of this folder are importable by their names, and the rollouts of tests of training."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "learn" / "train"),
]  # tests are no package: this is how they share a module
