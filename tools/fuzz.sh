#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while: its committed corpus first, then what
# grows from it. Inputs that fail are left in build-fuzz/artifacts/.
#
# usage: tools/fuzz.sh [--if-possible] SECONDS [JOBS]
# With --if-possible, a machine without clang's libFuzzer is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."
optional=no
if [ "${1:-}" = --if-possible ]; then
    optional=yes
    shift
fi
seconds=$1
jobs=${2:-$(nproc)}

shopt -s nullglob
targets=(tests/fuzz/fuzz_*.c)
if [ ${#targets[@]} = 0 ]; then
    echo "fuzz: no targets"
    exit 0
fi
if ! echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d + !n; }' |
    clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null; then
    echo "fuzz: skipped, no clang with libFuzzer here"
    [ $optional = yes ] && exit 0
    exit 1
fi
tools/build.sh fuzz "$jobs"
mkdir -p build-fuzz/artifacts build-fuzz/logs

run_one() {
    local name=$1 seconds=$2
    local log=build-fuzz/logs/$name.log grown=build-fuzz/corpus/$name seed=tests/fuzz/corpus/$name
    local -a inputs=("$grown") options=()
    mkdir -p "$grown"
    [ ! -d "$seed" ] || inputs+=("$seed")
    [ ! -e "tests/fuzz/$name.dict" ] || options+=("-dict=tests/fuzz/$name.dict")
    if "build-fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
        -artifact_prefix="build-fuzz/artifacts/$name-" "${options[@]}" "${inputs[@]}" >"$log" 2>&1; then
        echo "fuzz_$name: $(tail -n 1 "$log")"
    else
        tail -n 60 "$log"
        echo "fuzz_$name: failed; the whole log is $log"
        return 1
    fi
}
export -f run_one

printf '%s\n' "${targets[@]}" | sed 's#.*/fuzz_\(.*\)\.c#\1#' |
    xargs -P "$jobs" -I{} bash -c "set -euo pipefail; run_one {} $seconds"
