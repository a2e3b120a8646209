#!/usr/bin/env bash
# Checks and measures on a machine with a GPU, from a build made elsewhere: correctness first, then the
# same under compute-sanitizer, then the benchmarks and their peers. Needs neither cmake nor a compiler
# (peer_torch alone uses one).
#
# usage: tools/gpu_run.sh [STAGE...]      stages: tests memcheck racecheck benches peers; all of them
# BUILD (build-portable) holds the programs. OUT (gpu-out) gets three files: log.txt with everything that
# was printed, results.json with the figures by program, table.txt. CENOTE_TEST_DEVICE (cuda:0) is what is
# tested; ONLY (a pattern of grep -E) picks programs by name. A program may take LIMIT seconds (120; four
# times that under compute-sanitizer), all of them DEADLINE (570). Prints a verdict a program and a table;
# exits with 1 if anything failed or was not run.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-portable}
out=${OUT:-gpu-out}
limit=${LIMIT:-120}
deadline=${DEADLINE:-570}
export CENOTE_TEST_DEVICE=${CENOTE_TEST_DEVICE:-cuda:0}
export CENOTE_BENCH_DEVICE=$CENOTE_TEST_DEVICE
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(tests memcheck racecheck benches peers)
mkdir -p "$out"
: >"$out/log.txt"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rows=()
bad=0
SECONDS=0
only=${ONLY:-.}
# A library that one suite calls, wherever this machine keeps it.
CENOTE_CUBLAS=${CENOTE_CUBLAS:-$(find /usr/local /opt /usr/lib -name 'libcublas.so.1[23]' 2>/dev/null | head -1)}
export CENOTE_CUBLAS
sanitizer=$(command -v compute-sanitizer ||
    find /usr/local/cuda*/bin -name compute-sanitizer 2>/dev/null | head -1)

# verdict STAGE NAME STATUS SECONDS LOG: prints one line, keeps it for the table.
verdict() {
    local word
    case $3 in
    0) word=ok ;;
    77) word=skipped ;;
    124 | 137) word=TIMEOUT ;;
    none) word="NOT RUN" ;;
    *) word="FAILED ($3)" ;;
    esac
    # Without the device that is to be tested, nothing was.
    [ "$1 $word" != "tests skipped" ] || word=ABSENT
    case $word in ok | skipped) ;; *) bad=$((bad + 1)) ;; esac
    rows+=("$(printf '%-10s %-32s %-12s %5ss' "$1" "$2" "$word" "$4")")
    echo "${rows[-1]}"
    case $word in
    ok | "NOT RUN") ;;
    skipped) grep -h -m1 -i skipped "$5" | sed 's/^/    /' ;;
    *) tail -n 15 "$5" | sed 's/^/    /' ;;
    esac
}

# stage STAGE NAME LIMIT COMMAND...: runs a command with a time limit. What it prints goes to the log;
# for a program that measures, standard output is its JSON.
stage() {
    local stage=$1 name=$2 seconds=$3 start=$SECONDS log=$scratch/log status left=$((deadline - SECONDS))
    shift 3
    grep -qE "$only" <<<"$name" || return 0
    [ "$seconds" -lt $left ] || seconds=$left
    if [ $left -lt 5 ]; then
        verdict "$stage" "$name" none 0 /dev/null
        return
    fi
    case $stage in
    benches | peers)
        timeout -k 5 "$seconds" "$@" >"$scratch/$name.json" 2>"$log"
        status=$?
        if [ $status -eq 0 ] && ! python3 -m json.tool "$scratch/$name.json" >/dev/null 2>>"$log"; then
            status=65
        fi
        [ $status -eq 0 ] || rm -f "$scratch/$name.json"
        ;;
    *)
        timeout -k 5 "$seconds" "$@" >"$log" 2>&1
        status=$?
        ;;
    esac
    { echo "== $stage $name"; cat "$log"; } >>"$out/log.txt"
    verdict "$stage" "$name" "$status" "$((SECONDS - start))" "$log"
}

# The suites that were built and follow CENOTE_TEST_DEVICE, those of the device first.
suites() {
    local source name
    for source in tests/conformance/test_device*.c tests/conformance/test_*.c tests/integration/test_share*.c; do
        name=$(basename "$source" .c)
        [ ! -x "$build/$name" ] || echo "$name"
    done | awk '!seen[$0]++'
}

for wanted in "${stages[@]}"; do
    case $wanted in
    tests)
        for name in $(suites); do
            stage tests "$name" "$limit" "$build/$name"
        done
        ;;
    memcheck | racecheck)
        if [ -z "$sanitizer" ]; then
            echo "$wanted: skipped: no compute-sanitizer here"
            continue
        fi
        # Races are a matter of kernels, and of the suites that are about them.
        kernels='work|kernel|compute|product|conv|codec|calibrate|precision'
        for name in $(suites); do
            [ "$wanted" = memcheck ] || [[ $name =~ $kernels ]] || continue
            # These leave no memory on the GPU, of which the sanitizer needs some for itself, or are of
            # many processes.
            [[ ! $name =~ ^(test_global_random|test_share.*)$ ]] || continue
            # The suites provoke driver errors on purpose: only what kernels and copies do is judged.
            # The sanitizer makes a launch cost milliseconds: random programs are cut short.
            CENOTE_TEST_STEPS=${CENOTE_TEST_STEPS:-600} stage "$wanted" "$name" "$((limit * 4))" "$sanitizer" --tool "$wanted" \
                --error-exitcode 9 --report-api-errors no "$build/$name"
        done
        ;;
    benches)
        for program in "$build"/bench/bench_*; do
            [ ! -x "$program" ] || stage benches "$(basename "$program")" "$((limit * 2))" "$program"
        done
        ;;
    peers)
        for program in "$build"/bench/peer_* bench/peers/peer_*.py; do
            [ ! -x "$program" ] ||
                stage peers "$(basename "$program" .py)" "$((limit * 2))" "$program"
        done
        ;;
    *)
        echo "gpu_run: no stage named $wanted" >&2
        exit 2
        ;;
    esac
done

separator='{'
for figures in "$scratch"/*.json; do
    [ -e "$figures" ] || continue
    printf '%s"%s": ' "$separator" "$(basename "$figures" .json)"
    cat "$figures"
    separator=','
done >"$out/results.json"
[ ! -s "$out/results.json" ] || echo '}' >>"$out/results.json"

echo
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
    printf '%s\n' "${rows[@]}"
} | tee "$out/table.txt"
[ ${#rows[@]} -gt 0 ] || { echo "gpu_run: nothing was run: is $build built?"; exit 1; }
[ $bad -eq 0 ] || { echo "gpu_run: $bad failed"; exit 1; }
echo "gpu_run: all in order, in $SECONDS s"
