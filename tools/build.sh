#!/usr/bin/env bash
# Builds one preset: tools/build.sh NAME [JOBS]. Configuring is quiet but for warnings and whether there
# are CUDA kernels.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
jobs=${2:-$(nproc)}
folder=build-$name
[ "$name" != release ] || folder=build
if [ ! -e "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    cmake --preset "$name" >"$log" || { cat "$log"; exit 1; }
    sed -n 's/^-- \(CUDA kernels: .*\)/\1/p' "$log"
fi
cmake --build --preset "$name" -- -j "$jobs" --quiet
