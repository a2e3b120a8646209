#!/usr/bin/env bash
# Two processes that share an array; the one that made it is killed. `make demo` runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
export CENOTE_BROKER=$folder/broker.sock PYTHONPATH=python
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT

build/cenote serve &
until [ -S "$CENOTE_BROKER" ] || ! kill -0 $!; do sleep 0.05; done
python3 examples/share_publish.py &
publisher=$!
coproc python3 examples/share_read.py
read -r line <&"${COPROC[0]}"
echo "$line"

kill -KILL $publisher
wait $publisher 2>/dev/null || true
read -r line <&"${COPROC[0]}"
echo "$line"
build/cenote holders

echo >&"${COPROC[1]}"
cat <&"${COPROC[0]}"
