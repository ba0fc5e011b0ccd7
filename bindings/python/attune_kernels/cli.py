"""The program `attune`, as it comes with this package."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program, with this process's arguments."""
    program = Path(__file__).parent / "bin" / "attune"
    if not program.exists():
        sys.exit(f"attune: this installation of attune_kernels has no program ({program})")
    os.execv(program, [sys.argv[0], *sys.argv[1:]])


if __name__ == "__main__":
    main()
