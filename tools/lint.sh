#!/usr/bin/env bash
# What a reviewer should not have to say: formatting, layers, sizes, shell and C mistakes. Needs
# build-debug/compile_commands.json. Runs everything, then fails if anything did.
#
# usage: tools/lint.sh [JOBS]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-$(nproc)}
failed=()

check() {
    local name=$1
    shift
    "$@" || failed+=("$name")
}

sizes() {
    git ls-files '*.[ch]' '*.cu' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' Makefile |
        xargs wc -l | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines, over 600"; bad = 1 }
            END { exit bad }'
}

shell_scripts() {
    { git ls-files '*.sh'; echo .ci/run; } | xargs shellcheck
}

tidy() {
    git ls-files 'src/*.c' 'cli/*.c' 'preload/*.c' 'tests/*.c' 'examples/*.c' 'bench/*.c' |
        while read -r file; do # those that this build compiles
            ! grep -q "\"file\": \".*/$file\"" build-debug/compile_commands.json || echo "$file"
        done |
        xargs -r -P "$jobs" -n 4 clang-tidy -p build-debug --quiet \
            --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2)
}

check format tools/style.sh --check
check layers tools/check_layers.py
check sizes sizes
check shellcheck shell_scripts
check clang-tidy tidy
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]}" >&2
    exit 1
fi
echo "lint: all in order"
