#!/usr/bin/env bash
# Builds one preset: tools/build.sh NAME [JOBS]. Configuring speaks only when it has something to say.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
jobs=${2:-$(nproc)}
folder=build-$name
[ "$name" != release ] || folder=build
if [ ! -e "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
    cmake --preset "$name" --log-level=NOTICE >/dev/null
fi
cmake --build --preset "$name" -- -j "$jobs" --quiet
