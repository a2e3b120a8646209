#!/bin/sh
# Stands in for Nsight Compute's command: takes the options that cenote profile gives, runs the program
# and writes a recording. FAKE_NCU_MODE says how it fails, FAKE_NCU_CSV what it writes, FAKE_NCU_ARGS
# where it notes how it was called, FAKE_NCU_OFFERS what it has counters of.
case "${1-}" in
--version)
    echo "NVIDIA (R) Nsight Compute Command Line Profiler"
    echo "Version ${FAKE_NCU_VERSION:-2025.3.1.0} (build 36398880) (public-release)"
    exit 0
    ;;
--query-metrics)
    [ -n "${FAKE_NCU_OFFERS-}" ] || exit 1
    cat "$FAKE_NCU_OFFERS"
    exit 0
    ;;
esac
[ -z "${FAKE_NCU_ARGS-}" ] || printf '%s\n' "$@" >"$FAKE_NCU_ARGS"

log=
while [ $# -gt 0 ]; do
    case $1 in
    --csv) shift ;;
    --log-file)
        log=$2
        shift 2
        ;;
    --page | --print-units | --target-processes | --clock-control | --metrics | --launch-count | \
        --kernel-name-base | --kernel-name)
        shift 2
        ;;
    -*)
        echo "==ERROR== unrecognised option '$1'"
        exit 1
        ;;
    *) break ;;
    esac
done

refused="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters on the target device 0."
case "${FAKE_NCU_MODE-}" in
unknown)
    echo '==ERROR== Failed to find metric regex:^dram__throughput' >"$log"
    exit 1
    ;;
killed) kill -9 $$ ;;
killed-later)
    "$@" &
    sleep 1
    kill -9 $! $$
    ;;
refused)
    { echo '==PROF== Connected to process 7'; echo "$refused"; } >"$log"
    "$@"
    exit 1
    ;;
refused-late)
    "$@"
    echo "$refused" >"$log"
    exit 1
    ;;
esac
"$@"
status=$?
case "${FAKE_NCU_MODE-}" in
empty) : >"$log" ;;
none) echo '==WARNING== No kernels were profiled.' >"$log" ;;
cut) head -c 3000 "$FAKE_NCU_CSV" >"$log" ;;
*) cat "$FAKE_NCU_CSV" >"$log" ;;
esac
[ "${FAKE_NCU_MODE-}" != failing ] || exit 9
exit $status
