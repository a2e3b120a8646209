#!/usr/bin/env bash
# Installs what a build, the tests or the linters need and this machine lacks; quiet when nothing is
# missing. With apt (Debian, Ubuntu) it installs; elsewhere it prints what to install.
#
# usage: tools/deps.sh [build|test|lint]     (build is the default)
# Exit status: 0 all that is needed is there; 1 something is missing, and stderr says what.
set -euo pipefail

# package, whether it is needed, and how to see that it is there
table_build() {
    row gcc needed have gcc
    row libc6-dev needed header stdio.h
    row cmake needed cmake_is_new
    row ninja-build needed have ninja
    row pkg-config needed have pkg-config
    row python3 needed have python3
    row libjansson-dev needed library jansson
    row zlib1g-dev needed library zlib
    row libzstd-dev needed library libzstd
    row liburing-dev needed library liburing
    row libxxhash-dev needed header xxhash.h
    row libdw-dev wanted header elfutils/libdwfl.h # names for the C stacks of traces
    row libcmocka-dev needed library cmocka # every kind of build but dist and fuzz has the tests
}
table_test() {
    table_build
    row g++ needed have g++
    row clang wanted have clang
    row "libclang-rt-$(clang_major)-dev" wanted fuzzer_links
    row clang-format wanted have clang-format
    row python3-numpy wanted numpy_is_there # what the codecs are compared with
    row spin wanted have spin # the model of the broker's protocol
}
table_lint() {
    table_build
    row clang-format needed have clang-format
    row clang-tidy needed have clang-tidy
    row shellcheck needed have shellcheck
}

have() { command -v "$1" >/dev/null 2>&1; }
header() { have gcc && echo "#include <$1>" | gcc -E - >/dev/null 2>&1; }
library() { have pkg-config && pkg-config --exists "$1" 2>/dev/null; }
numpy_is_there() { "$(dirname "$0")/test_python.sh" >/dev/null; }
cmake_is_new() {
    have cmake && [ "$(printf '3.25\n%s\n' "$(cmake --version | sed -n '1s/[^0-9]*//p')" |
        sort -V | head -n 1)" = 3.25 ]
}
# The major version of clang, or of the one that apt would install.
clang_major() {
    if have clang; then
        clang -dumpversion | cut -d. -f1
    elif have apt-cache; then
        apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1
    fi
}
fuzzer_links() {
    have clang && echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d + !n; }' |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null
}

row() { # package, needed or wanted, check...
    local package=$1 kind=$2
    shift 2
    if ! "$@"; then
        if [ "$kind" = needed ]; then needed+=("$package"); else wanted+=("$package"); fi
    fi
}

look() {
    needed=() wanted=()
    "table_$set_name"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif have sudo; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        return 1
    fi
}

apt_install() {
    local log
    log=$(mktemp)
    echo "installing: $*"
    if as_root apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null; then
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

set_name=${1:-build}
case $set_name in
build | test | lint) ;;
*)
    echo "usage: tools/deps.sh [build|test|lint]" >&2
    exit 2
    ;;
esac

look
if [ $((${#needed[@]} + ${#wanted[@]})) -gt 0 ] && have apt-get; then
    if as_root true; then
        as_root apt-get update -qq >/dev/null 2>&1 </dev/null ||
            echo "tools/deps.sh: apt-get update failed; trying the lists that are here" >&2
        look # the lists may have said what could not be told before
        if [ ${#needed[@]} -gt 0 ]; then apt_install "${needed[@]}" || true; fi
        for package in "${wanted[@]}"; do
            apt_install "$package" || true
        done
        look
    fi
fi
if [ ${#needed[@]} -gt 0 ]; then
    echo "cenote needs these, by their names on Debian (cmake 3.25 or newer): ${needed[*]}" >&2
    if have apt-get; then
        echo "install them as root: apt-get install ${needed[*]}" >&2
    fi
    exit 1
fi
if [ ${#wanted[@]} -gt 0 ]; then
    echo "not here, so what needs them is skipped: ${wanted[*]}"
fi
