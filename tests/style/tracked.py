"""The files that git tracks. Style checks read these alone: build trees and downloads have other styles."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


def tracked_files(*patterns: str) -> list[str]:
    """Names below the root of the source tree. Ends the program with 77 outside of a git checkout."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        print("skipped: this is not a git checkout")
        sys.exit(SKIPPED)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
