"""The C++ shims behind cenote.torch: built once for each torch that is installed, then kept.

One is the allocator's, the other, small and without CUDA, moves a storage to other memory.

torch's C++ interface differs from version to version, so a shim is compiled where it is used: with
the C++ compiler ($CXX, else g++), torch's own headers and those of CUDA's runtime. What was built lies
in $CENOTE_CACHE, else $XDG_CACHE_HOME/cenote or ~/.cache/cenote, under a name that stands for torch's
version, the sources and the library; processes that start at once build it once.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

import torch

from cenote import _lib

SOURCES = Path(__file__).with_name("csrc")


class Shim(NamedTuple):
    """What one is built from; `libraries` of torch's."""

    name: str
    folder: Path
    libraries: Tuple[str, ...]
    needs_cuda: bool


ALLOCATOR = Shim("torch", SOURCES, ("torch_cuda", "torch_cpu", "c10_cuda", "c10"), True)
STORAGE = Shim("torch_storage", SOURCES / "storage", ("c10",), False)

#: torch's versions that the allocator's shim was written against.
TORCH_FIRST, TORCH_LAST = (2, 11), (2, 11)


class BuildError(RuntimeError):
    """The shim cannot be built here; the message says what is missing."""


def cache_folder() -> Path:
    named = os.environ.get("CENOTE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "cenote"


def _header_folders() -> List[Path]:
    """Where CUDA's runtime headers may be: a toolkit, or the packages that torch came with."""
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(name) / "include" for name in named if name]
    folders.append(Path("/usr/local/cuda/include"))
    spec = importlib.util.find_spec("nvidia")
    for base in spec.submodule_search_locations if spec and spec.submodule_search_locations else []:
        folders += sorted(Path(base).glob("*/include"))
    return folders


def cuda_headers() -> List[Path]:
    found = [folder for folder in _header_folders() if folder.is_dir()]
    if not any((folder / "cuda_runtime_api.h").is_file() for folder in found):
        raise BuildError(
            "CUDA's runtime headers (cuda_runtime_api.h) were not found: set CUDA_HOME to a toolkit, "
            "or install the package nvidia-cuda-runtime of torch's CUDA version"
        )
    return found


def library_headers() -> Path:
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "include", package.parents[1] / "include"):
        if (folder / "cenote" / "cenote.h").is_file():
            return folder
    raise BuildError(f"cenote's headers were not found beside {package}")


def _check_torch() -> None:
    if torch.version.cuda is None:
        raise BuildError(f"torch {torch.__version__} was built without CUDA")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if not TORCH_FIRST <= version <= TORCH_LAST:
        first, last = (".".join(map(str, v)) for v in (TORCH_FIRST, TORCH_LAST))
        raise BuildError(
            f"cenote.torch knows torch {first} to {last}, this is {torch.__version__}; "
            "`cenote run` without --torch works with any"
        )


def _sources(kind: Shim) -> List[Path]:
    return sorted(kind.folder.glob("*.cpp"))


def _name(kind: Shim) -> str:
    digest = hashlib.sha256()
    for file in [*_sources(kind), *sorted(kind.folder.glob("*.h"))]:
        digest.update(file.read_bytes())
    for file in sorted((library_headers() / "cenote").glob("*.h")):
        digest.update(file.read_bytes())
    digest.update(f"{_lib.path()} {torch.__version__} {torch.__file__} {sys.platform}".encode())
    # By its name, frames in it count as cenote's own in stacks.
    return f"libcenote_{kind.name}-{torch.__version__}-{digest.hexdigest()[:16]}.so"


def _compiler() -> List[str]:
    return shlex.split(os.environ.get("CXX", "g++"))


def _run(commands: List[List[str]]) -> None:
    """All at once; the first that fails is told."""
    try:
        running = [
            subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for c in commands
        ]
    except OSError as error:
        raise BuildError(f"no C++ compiler: {commands[0][0]}: {error.strerror}; set CXX") from None
    outputs = [process.communicate()[0] for process in running]
    for process, output, command in zip(running, outputs, commands):
        if process.returncode:
            raise BuildError(f"{shlex.join(command)} failed:\n{output}")


def _build(kind: Shim, target: Path) -> None:
    torch_folder = Path(torch.__file__).resolve().parent
    includes = [f"-I{library_headers()}"]
    for folder in [torch_folder / "include", *(cuda_headers() if kind.needs_cuda else [])]:
        includes += ["-isystem", str(folder)]
    abi = int(torch.compiled_with_cxx11_abi())
    flags = ["-std=c++17", "-O2", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *includes]
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        sources = _sources(kind)
        objects = [str(Path(work) / f"{source.stem}.o") for source in sources]
        _run([[*_compiler(), *flags, "-c", str(s), "-o", o] for s, o in zip(sources, objects)])
        made = str(Path(work) / "shim.so")
        libraries = torch_folder / "lib"
        # The C++ library is torch's, already in the process: some compilers would link one of their own
        # into the shim, and two that share objects crash.
        links = ["-nodefaultlibs", "-lgcc", "-lc", f"-L{libraries}"]
        links += [f"-l{library}" for library in kind.libraries]
        links += [os.path.abspath(_lib.path()), f"-Wl,-rpath,{libraries}"]
        links += [f"-Wl,-rpath,{Path(_lib.path()).resolve().parent}"]
        _run([[*_compiler(), "-shared", "-o", made, *objects, *links]])
        os.replace(made, target)  # whole or not at all


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shim(kind: Shim = ALLOCATOR) -> str:
    """A shim's file, built if it is not there yet. BuildError says what is missing."""
    if kind.needs_cuda:
        _check_torch()
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / _name(kind)
        with _locked(folder):
            if not target.is_file():
                _build(kind, target)
    except OSError as error:
        raise BuildError(f"{error.filename}: {error.strerror}; CENOTE_CACHE names another") from None
    return str(target)
