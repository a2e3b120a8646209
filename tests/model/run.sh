#!/usr/bin/env bash
# Visits every state of tests/model/broker.pml: all orders of the steps of the publisher, the reader,
# the stranger and the broker, with kills and a restart anywhere. Then seeds one mistake after the
# other, each of which must be found: a model that finds none proves nothing.
#
# Some 7.5 million states in half a minute, 0.3 million more with the stranger, 0.4 GiB of memory;
# each mistake is found within seconds.
#
# usage: tests/model/run.sh [FOLDER]     for what is built; default a temporary one
# Exit status: 0 all is as it should be; 1 not so, or the model does not build; 77 no spin here.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/broker.pml

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "skipped: the model needs $tool (Debian's package $tool)"
        exit 77
    fi
done
if [ $# -gt 0 ]; then
    work=$1
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
cd "$work"

# the option to gcc, the model's definitions
build() {
    local optimise=$1
    shift
    rm -f pan pan.* ./*.trail
    spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log >&2; return 1; }
    # No partial order reduction: it gains little here, and is not sound with every `unless`.
    gcc "$optimise" -w -DSAFETY -DNOREDUCE -DNOFAIR -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
}

# Sets `errors`; says no if the search did not come to its end.
search() {
    ./pan -m100000 -w24 >pan.log 2>&1 || true
    errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.log)
    if [ -z "$errors" ] || grep -q -e 'max search depth too small' -e 'out of memory' pan.log; then
        cat pan.log >&2
        return 1
    fi
}

correct() {
    build -O2 "$@"
    search
    if [ "$errors" != 0 ]; then
        grep '^pan:1' pan.log >&2
        # What happened, step by step.
        spin -p -g -k broker.pml.trail "$@" "$model" >&2 || true
        echo "the model is wrong: see above" >&2
        return 1
    fi
    echo "in order:${*:+ $*}$(sed -n 's/^ *\([0-9]*\) states, stored.*/ \1 states/p' pan.log)"
}

mistake() {
    local name=$1
    shift
    build -O0 "-D$name" "$@"
    search
    if [ "$errors" = 0 ]; then
        echo "not found: $name" >&2
        return 1
    fi
    echo "found: $name: $(sed -n 's/^pan:1: //p' pan.log | cut -c 1-60)"
}

correct
correct -DSTRANGER
mistake BUG_HANGUP_IS_DEATH   # leases end when the socket closes
mistake BUG_UNCLEAN_REUSED    # a block is reused whatever became of its readers
mistake BUG_REUSES_EARLY      # a block is reused once it is withdrawn
mistake BUG_CLOSES_EARLY      # a lease is given up before the work on it is done
mistake BUG_RESTART_IS_CLEAN  # a new broker takes those that it knows of for all
mistake BUG_PENDING_LOST      # a lease that is told before its export is forgotten
mistake BUG_PENDING_UNCHECKED -DSTRANGER # or believed to anyone, with a right to the pages
mistake BUG_OPENS_WITHDRAWN   # a withdrawn export is opened
mistake BUG_HOLDER_OPENS      # what a reader announces may be opened
mistake BUG_REOPENS           # a publisher that does not know opens what was withdrawn
mistake BUG_UNTOLD            # nobody is told of a withdrawal
mistake BUG_FORGETS_WITHDRAWN # what was withdrawn and is over comes back by an announcement
mistake BUG_IDLE_TOO_SOON     # the publisher hears of the end of what it has not told again yet
mistake BUG_DEAD_MAY_ASK      # a request is served after its client's death
