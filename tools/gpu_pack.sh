#!/usr/bin/env bash
# Gathers what tools/gpu_run.sh and the programs of tests/gpu and bench/gpu need of a portable build, without
# objects and unit tests, into a folder that is small enough to travel.
#
# usage: tools/gpu_pack.sh FOLDER [BUILD]      BUILD (build-portable): made with `make portable`
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: tools/gpu_pack.sh FOLDER [BUILD]" >&2
    exit 2
fi
folder=$1
build=${2:-build-portable}
if [ ! -x "$build/cenote" ]; then
    echo "gpu_pack: $build holds no build; make it with: make portable" >&2
    exit 1
fi
rm -rf "$folder"
mkdir -p "$folder/bench"
cp -a "$build"/cenote "$build"/lib*.so* "$build"/run_* "$folder/"
for source in tests/conformance/test_*.c tests/integration/test_share*.c; do
    name=$(basename "$source" .c)
    [ ! -x "$build/$name" ] || cp -a "$build/$name" "$folder/"
done
for program in "$build"/bench/bench_* "$build"/bench/peer_*; do
    [ ! -x "$program" ] || cp -a "$program" "$folder/bench/"
done
if [ -d "$build/tests/gpu" ]; then # made where there is nvcc
    mkdir "$folder/tests"
    cp -a "$build/tests/gpu" "$folder/tests/"
fi
du -sh "$folder"
