"""The command `cenote` of an installed wheel: the C binary that lies in the package."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the binary, with the same arguments."""
    binary = Path(__file__).with_name("bin") / "cenote"
    try:
        os.execv(binary, [str(binary), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cenote: {binary}: {error.strerror}")
