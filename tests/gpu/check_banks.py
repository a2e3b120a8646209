"""What `cenote banks` predicts beside what Nsight Compute counts on this GPU.

Each pattern's addresses are made here anew, and read from shared memory by one warp (banks.cu,
compiled here by nvcc) under ncu. CENOTE names the command to check. Exit status: 0 all counts are
equal, 1 one differs, 77 there is no GPU, nvcc or ncu.
"""

import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CENOTE = os.environ.get("CENOTE", str(HERE.parent.parent / "build-portable" / "cenote"))
METRICS = ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")

# rows, cols, bytes of an element, walk, pad, swizzle (bits, base, shift) or None, stride
PATTERNS = [
    (32, 32, 4, "row", 0, None, 1),
    (32, 32, 4, "column", 0, None, 1),
    (32, 32, 4, "column", 1, None, 1),
    (32, 32, 4, "column", 2, None, 1),
    (32, 32, 4, "column", 0, (5, 0, 0), 1),
    (32, 32, 2, "column", 0, None, 1),
    (64, 16, 1, "column", 0, None, 1),
    (32, 32, 8, "column", 0, None, 1),
    (32, 32, 8, "column", 1, None, 1),
    (32, 16, 16, "column", 0, None, 1),
    (32, 8, 16, "column", 0, (3, 0, 0), 1),
    (16, 48, 4, "strided", 0, None, 3),
    (16, 64, 4, "strided", 0, None, 8),
    (24, 20, 4, "column", 0, None, 1),
]


def accesses(pattern):
    """The byte offsets of each access of the walk, 32 a line, -1 where a lane has none left."""
    rows, cols, elem, walk, pad, swizzle, stride = pattern
    order = [(r, c) for r in range(rows) for c in range(cols)]
    if walk == "column":
        order = [(r, c) for c in range(cols) for r in range(rows)]
    elif walk == "strided":
        order = order[::stride]
    offsets = []
    for r, c in order:
        if swizzle:
            bits, base, shift = swizzle
            c ^= ((r >> shift) & ((1 << bits) - 1)) << base
        offsets.append((r * (cols + pad) + c) * elem)
    offsets += [-1] * (-len(offsets) % 32)
    return offsets


def predicted(pattern):
    rows, cols, elem, walk, pad, swizzle, stride = pattern
    words = [CENOTE, "banks", "--rows", rows, "--cols", cols, "--elem", elem, "--access", walk, "--pad", pad, "--json"]
    if walk == "strided":
        words += ["--stride", stride]
    if swizzle:
        words.append("--swizzle=%d,%d,%d" % swizzle)
    told = json.loads(subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout)
    return told["wavefronts"], told["conflicts"]


def counted(program, pattern):
    ncu = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--metrics", ",".join(METRICS)]
    text = "\n".join(str(o) for o in accesses(pattern))
    done = subprocess.run([*ncu, program, str(pattern[2])], input=text, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    if done.returncode or len(rows) != 2:  # units, and one launch
        raise SystemExit(f"ncu on {pattern}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return tuple(int(float(rows[1][m].replace(",", ""))) for m in METRICS)


def main():
    missing = [tool for tool in ("nvcc", "ncu", "nvidia-smi") if not shutil.which(tool)]
    if missing:
        print(f"skipped: there is no {', '.join(missing)}")
        return 77
    wrong, rows = 0, []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "banks")
        subprocess.run(["nvcc", "-O2", "-arch=native", "-o", program, str(HERE / "banks.cu")], check=True)
        for pattern in PATTERNS:
            told, seen = predicted(pattern), counted(program, pattern)
            wrong += told != seen
            rows.append({"pattern": pattern, "predicted": told, "counted": seen})
            print("ok  " if told == seen else "FAIL", pattern, "wavefronts and conflicts:", told, "counted:", seen, flush=True)
    if len(sys.argv) > 1:  # where to write them
        pathlib.Path(sys.argv[1]).write_text(json.dumps(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
