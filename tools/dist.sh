#!/usr/bin/env bash
# Makes dist/cenote-VERSION-MACHINE-linux.tar.gz: a static `cenote` that runs on any Linux of this
# processor without being installed, for the commands that need no GPU, with its manual
# and the documents that this refers to.
#
# usage: tools/dist.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh dist "${1:-$(nproc)}"
version=$(sed -n 's/.*CENI_VERSION "\(.*\)".*/\1/p' src/base/version.h)
name=cenote-$version-$(uname -m)-linux
folder=dist/$name
rm -rf "$folder" && mkdir -p "$folder/man/man1" "$folder/docs/formats"
cp build-dist/cenote "$folder/"
strip "$folder/cenote"
cp LICENSE README.md CHANGELOG.md "$folder/"
cp man/*.1 "$folder/man/man1/"
cp docs/explain.md docs/replay.md docs/banks.md docs/roofline.md docs/tile.md "$folder/docs/"
cp docs/formats/probe.md "$folder/docs/formats/"

if readelf -l "$folder/cenote" | grep -q INTERP; then
    echo "tools/dist.sh: $folder/cenote is not static" >&2
    exit 1
fi
[ "$(env -i "$folder/cenote" --version)" = "cenote $version" ]
when=$(git log -1 --format=%ct 2>/dev/null || date +%s)
tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -cf - "$name" |
    gzip -9n >"dist/$name.tar.gz"
rm -rf "$folder"
echo "dist/$name.tar.gz"
