#!/bin/bash
# Runs one case of the command line's golden tests: run.sh CENOTE CASE_DIR
#
# CASE_DIR/cmd           a shell script; $CENOTE is the program, $DATA tests/data, run in a new folder
# CASE_DIR/exit          its exit status (no file: 0); 77: it cannot run here, and its standard error
#                        says why
# CASE_DIR/stdout.glob   a shell pattern that all of standard output matches (no file: it is empty)
# CASE_DIR/stderr.exact  standard error to the letter (no file: it is empty)
set -u
export CENOTE=$1
case_dir=$(cd "$2" && pwd)
DATA=$(cd "$case_dir/../../data" && pwd)
export DATA
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

bash "$case_dir/cmd" >stdout 2>stderr
status=$?
if [ "$status" = 77 ]; then
    cat stderr
    exit 77
fi
failed=0
wrong() {
    echo "$(basename "$case_dir"): $1"
    failed=1
}

expected=0
[ -e "$case_dir/exit" ] && expected=$(cat "$case_dir/exit")
[ "$status" = "$expected" ] || wrong "exit status $status, expected $expected"

pattern=
[ -e "$case_dir/stdout.glob" ] && pattern=$(cat "$case_dir/stdout.glob")
# shellcheck disable=SC2053  # the right side is a pattern
if ! [[ "$(cat stdout)" == $pattern ]]; then
    wrong "standard output does not match stdout.glob; it is:"
    cat stdout
fi

touch none
exact=none
[ -e "$case_dir/stderr.exact" ] && exact=$case_dir/stderr.exact
diff -u "$exact" stderr || wrong "standard error differs"
exit $failed
