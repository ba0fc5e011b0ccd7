"""A database of the tests' own: they tune, and nobody's results may decide what they see."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
_folder = tempfile.TemporaryDirectory(prefix="attune_python_tests_")
os.environ["ATTUNE_DB"] = str(Path(_folder.name) / "attune.db")
os.environ.pop("ATTUNE_POLICY", None)
