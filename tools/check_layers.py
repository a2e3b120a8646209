#!/usr/bin/env python3
"""Fails when an include goes against docs/design.md, "Parts, and who may include whom".

Includes go downward only. A part may include itself, the parts that its line names, and all that
those stand on; a public header counts as its part. Files outside src/ see the public headers, and of
the inside only what their line below grants. Prints "file:line: what is wrong".

usage: tools/check_layers.py [ROOT]
"""

import re
import sys
from pathlib import Path

# part: the parts right below it. The folder of a part is src/<part>, save for FILES below.
BELOW = {
    "base": [],
    "trace/emit": ["base"],
    "ledger/file": ["trace/emit"],
    "trace": ["trace/emit", "ledger/file"],
    "ledger/nvml": ["base"],
    "ledger": ["trace", "ledger/nvml"],
    "plan": ["base"],
    "kernels": ["base"],
    "dev": ["trace/emit", "kernels"],
    "dev/cuda": ["dev"],
    "dev/host": ["dev"],
    "pool": ["dev", "plan"],
    "compute/matrix": ["dev"],
    "codec/format": ["compute/matrix"],
    "compute": ["codec/format"],
    "codec": ["compute"],
    "comm": ["dev"],
    "ipc": ["pool"],
    "tier": ["pool", "codec"],
    "overlap": ["tier", "comm"],
    "probe/results": ["base"],
    "probe/paper": ["probe/results"],
    "probe/profile": ["probe/results"],
    "probe": ["dev", "comm", "probe/paper", "probe/profile", "ledger/nvml"],
    "advise": ["trace", "plan", "probe/results"],
}

# Files that are a part of their own inside another part's folder, by prefix.
FILES = {
    "src/trace/emit": "trace/emit",
    "src/trace/ring": "trace/emit",
    "src/trace/format.h": "trace/emit",
    "src/trace/write": "trace/emit",
    "src/compute/matrix": "compute/matrix",
    "src/compute/compute.h": "compute/matrix",
    "src/codec/codec": "codec/format",
    "src/ledger/file": "ledger/file",
    "src/ledger/format.h": "ledger/file",
    "src/ledger/nvml": "ledger/nvml",
    "src/probe/results": "probe/results",
    "src/probe/profile": "probe/profile",
}

# Whose a public header is; one that bears its part's name need not be here.
PUBLIC = {
    "status": "base",
    "dtype": "base",
    "log": "base",
    "version": "base",
    "options": "base",
    "device": "dev",
    "matrix": "compute/matrix",
    "codec": "codec/format",
    "product": "compute",
    "snapshot": "trace",
    "explain": "trace",
    "diagnose": "trace",
    "report": "trace",
    "trace": "trace/emit",
    "broker": "ipc",
    "share": "ipc",
    "ledger": "ledger/file",  # whose entries are what the file's reader gives
    "holders": "ledger",
    "stats": "pool",
    "movable": "pool",
    "global": "pool",
    "frameworks": "pool",
    "probe": "probe/results",
    "roofline": "probe/paper",
    "profile": "probe/profile",
    "tensor": "codec",
    "quantize": "codec",
    "calibrate": "codec",
    "precision": "codec",
    "broker": "ipc",
}

ALL = set(BELOW)

# Folders outside src/: the parts whose inside they may include. tests/unit/<part> sees its part.
OUTSIDE = {
    "include/cenote": set(),
    "cli": set(),
    "preload": {"trace/emit"},
    "examples": set(),
    "bench/driver": {"dev", "ipc"},  # what the driver and the broker cost, below the public headers
    "bench": set(),
    "tests/driver": {"dev/cuda", "dev/host"},  # serves the driver's ABI from the host backend
    "tests/gpu": {"kernels"},
    "tests/fuzz": ALL,
    "tests/conformance": {"dev", "dev/host", "pool"},
    "tests/integration": {"base", "ipc"},  # clients that speak to the broker in raw messages
    "tests": {"base"},
}

# Headers of outside libraries that only some folders may see.
FOREIGN = [
    (re.compile(r"^(cuda\w*|nvml|nvrtc|cub|cu(blas|dnn|fft|rand|sparse)\w*)(\.h|/.*)$"),
     ("src/dev/cuda", "src/kernels", "tests/unit/codec", "tests/unit/dev", "tests/unit/ledger", "tests/driver", "tests/gpu",
      "bench/peers")),
    (re.compile(r"^nccl.*\.h$"), ("src/comm",)),
    (re.compile(r"^mpi\.h$"), ("src/comm",)),
]
PUBLIC_LIBC = {"stdarg.h", "stdbool.h", "stddef.h", "stdint.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".hpp", ".inc"}


def closure(part):
    """The part and all that it stands on."""
    seen, todo = set(), [part]
    while todo:
        p = todo.pop()
        if p not in seen:
            seen.add(p)
            todo += BELOW[p]
    return seen


def part_of(path):
    """The part of a file under src/, None elsewhere or where the folder is no part."""
    if not path.startswith("src/"):
        return None
    for prefix, part in FILES.items():
        if path.startswith(prefix):
            return part
    folders = path.split("/")[1:-1]
    for length in (2, 1):
        if len(folders) >= length and "/".join(folders[:length]) in BELOW:
            return "/".join(folders[:length])
    return None


def granted(path):
    """What a file may include: the parts whose inside it sees, and those whose public header."""
    part = part_of(path)
    if part:
        return closure(part), closure(part)
    unit = re.match(r"tests/unit/(.+)/[^/]+$", path)
    if unit:
        parts = [p for p in BELOW if p == unit[1] or p.startswith(unit[1] + "/")]
        parts += [unit[1].split("/")[0]] if unit[1].split("/")[0] in BELOW else []
        return set().union(*(closure(p) for p in parts)) | {"base"}, ALL
    for folder, parts in OUTSIDE.items():
        if path.startswith(folder + "/"):
            return set().union(*(closure(p) for p in parts)), ALL
    return ALL, ALL


def resolve(root, path, name):
    """The file, from the root, that an include names; None if there is no such file here."""
    bases = [Path(path).parent, Path("include"), Path("src"), Path(".")]
    for base in bases:
        if (root / base / name).is_file():
            found = (root / base / name).resolve()
            if root.resolve() in found.parents:
                return found.relative_to(root.resolve()).as_posix()
    return None


def judge_quoted(root, path, name):
    target = resolve(root, path, name)
    inside, public = granted(path)
    if target is None:
        # Generated headers are not here; an inside name still tells its part.
        target = "src/" + name
        if part_of(target) is None:
            return None
    if target.startswith("include/cenote/"):
        stem = Path(target).stem
        if stem == "cenote":
            return "the parts include the headers they use, not all" if part_of(path) else None
        part = PUBLIC.get(stem, stem if stem in BELOW else None)
        if part is None:
            return f"say in tools/check_layers.py which part {name} belongs to"
        if part not in public:
            return f"{part_of(path)} may not include {part}'s public header {name}"
        return None
    part = part_of(target)
    if part:
        if part not in inside:
            return f"{part_of(path) or path.rsplit('/', 1)[0]} may not include {part} ({name})"
        return None
    if target.startswith("src/"):
        return f"{target} is in no part that tools/check_layers.py knows"
    here, there = path.split("/")[0], target.split("/")[0]
    if here != there and not (here == "tests" and there in ("cli", "preload")):
        return f"{here} may not include {there} ({name})"
    return None


def judge_system(path, name):
    if path.startswith("include/cenote/") and name not in PUBLIC_LIBC:
        return f"public headers include only each other and libc's types, not <{name}>"
    if name.startswith("cenote/"):
        return f'write "{name}"'
    for pattern, folders in FOREIGN:
        if pattern.match(name) and not path.startswith(tuple(f + "/" for f in folders)):
            return f"<{name}> belongs in {' or '.join(folders)} only"
    return None


def check(root):
    """All breaches below root, as lines."""
    breaches = []
    for top in ("include", "src", "cli", "preload", "tests", "bench", "examples"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            if path.startswith("src/") and part_of(path) is None:
                breaches.append(f"{path}:1: in no part that tools/check_layers.py knows")
                continue
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                found = INCLUDE.match(line)
                if not found:
                    continue
                quoted, system = found.groups()
                why = judge_quoted(root, path, quoted) if quoted else judge_system(path, system)
                if why:
                    breaches.append(f"{path}:{number}: {why}")
    return breaches


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    breaches = check(root)
    for line in breaches:
        print(line, file=sys.stderr)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
