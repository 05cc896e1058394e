import sys
from pathlib import Path

# Tests are imported by path, so what they share is found here.
sys.path.insert(0, str(Path(__file__).parent))
