"""The command `cenote` of an installed wheel: the C binary that lies in the package."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the binary, with the same arguments; `cenote run` is told where the rest lies."""
    package = Path(__file__).resolve().parent
    binary = package / "bin" / "cenote"
    os.environ.setdefault("CENOTE_PRELOAD", str(package / "lib" / "libcenote_preload.so"))
    os.environ.setdefault("CENOTE_PYTHON", str(package.parent))
    try:
        os.execv(binary, [str(binary), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cenote: {binary}: {error.strerror}")
