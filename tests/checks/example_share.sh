#!/usr/bin/env bash
# examples/share.c in two processes: a reader that is there before the publisher, and one after it.
#
# usage: tests/checks/example_share.sh CENOTE SHARE
set -euo pipefail
cenote=$1 share=$2
folder=$(mktemp -d)
export CENOTE_BROKER=$folder/broker.sock
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
    echo "$1" >&2
    exit 1
}
expect() { # what it is of, what was expected, what came
    [ "$2" = "$3" ] || fail "$1: '$3', not '$2'"
}

if "$share" read demo 2>"$folder/said"; then fail "it read without a broker"; fi
grep -q 'no broker listens' "$folder/said" || fail "without a broker: $(cat "$folder/said")"

"$cenote" serve 2>"$folder/log" &
until grep -qs listens "$folder/log"; do
    kill -0 $! || fail "no broker: $(cat "$folder/log")"
    sleep 0.01
done
"$share" read demo >"$folder/early" &
early=$!
mkfifo "$folder/stay"
"$share" publish demo <"$folder/stay" >"$folder/published" &
publisher=$!
exec 3>"$folder/stay"
wait $early || fail "the early reader failed"
sum="demo: 8388608 bytes, their sum is 8388608"
expect "the early reader" "$sum" "$(cat "$folder/early")"
expect "a later reader" "$sum" "$("$share" read demo)"
exec 3>&-
wait $publisher || fail "the publisher failed"
expect "the publisher" "demo version 1 is shared" "$(cat "$folder/published")"
expect "what is left" "Shared through the broker: 0 B in 0 sets" "$("$cenote" holders | tail -n 1)"
if "$share" sideways demo 2>/dev/null; then fail "it took a word that it does not know"; fi
