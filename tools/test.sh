#!/usr/bin/env bash
# All that is tested without a GPU, cheap things first; the first failure ends it. The release suite
# comes last, so that the closing lines are those of ctest over everything.
#
# usage: tools/test.sh [JOBS]; FUZZ_SMOKE_SECONDS (8) is the time for each fuzz target.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}

# The sanitizers keep their own maps at fixed addresses, where some kernels' randomly placed programs
# may lie: so place those the same each time, where this may be asked for.
fixed=()
if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi

suite() { # preset, what runs ctest...
    printf '\n== %s\n' "$1"
    tools/build.sh "$1" "$jobs"
    # One more than there are processors: some tests wait, for a timeout or for one that connects again.
    "${@:2}" ctest --preset "$1" -j $((jobs + 1))
}

echo "== style"
tools/style.sh --check
suite asan "${fixed[@]}"
suite tsan "${fixed[@]}"
printf '\n== fuzz\n'
tools/fuzz.sh --if-possible "${FUZZ_SMOKE_SECONDS:-8}" "$jobs"
suite release
