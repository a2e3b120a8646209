#!/usr/bin/env bash
# What gets installed works for someone who has only that: it is installed below a DESTDIR and moved;
# each header is compiled alone as C11 and C++17; a program is built through pkg-config and through
# find_package, against the shared and the static library, and run.
#
# usage: tests/checks/install.sh BUILD CC
set -euo pipefail
build=$1 cc=$2
cxx=${CXX:-c++}
source=$(cd "$(dirname "$0")/../.." && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

DESTDIR=$temp/stage cmake --install "$build" --prefix /opt/cenote >"$temp/log"
mv "$temp/stage/opt/cenote" "$temp/moved"
root=$temp/moved
lib=$(dirname "$(find "$root" -name libcenote.so)")
for file in bin/cenote include/cenote/cenote.h share/bash-completion/completions/cenote share/man/man1/cenote.1 \
    lib/cenote/libcenote_preload.so lib/systemd/system/cenote.service lib/systemd/user/cenote.socket \
    share/doc/cenote/docs/explain.md share/doc/cenote/docs/replay.md share/doc/cenote/examples/share_read.py; do
    [ -e "$root/$file" ] || { echo "not installed: $file" >&2; exit 1; }
done
(cd "$temp" && "$root/bin/cenote" run -- true) || { echo "cenote run does not find what was installed" >&2; exit 1; }
links_to() { # the files that a page's links name
    { grep -o '](\([^)#]*\)' "$1" || true; } | sed 's/^](//; /^[a-z]*:/d; /^$/d'
}
pages=$(find "$root/share/doc" -name '*.md')
for page in $pages; do
    for link in $(links_to "$page"); do
        [ -e "$(dirname "$page")/$link" ] || { echo "not installed: $link, of ${page#"$root/"}" >&2; exit 1; }
    done
done
[ "$(links_to "$root/share/doc/cenote/README.md" | wc -l)" -gt 5 ] || { echo "no links in README.md" >&2; exit 1; }
completes() { # what is offered, the words typed...
    local got
    got=$(cd "$root" && bash -c '. share/bash-completion/completions/cenote
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _cenote; echo "${COMPREPLY[@]}"' cenote cenote "${@:2}")
    [ "$got" = "$1" ] || { echo "completion of '${*:2}': '$got', not '$1'" >&2; exit 1; }
}
completes "explain" ex
completes "--cap --curve" replay --c
completes "$(cd "$root" && compgen -f | xargs)" explain ""
completes "replay revoke" help re
completes "2:4_fp16 2:4_bf16 2:4_int8" quantize --format 2
if grep -rIl -e "$source" -e /opt/cenote "$root/share" "$lib/pkgconfig" "$lib/cmake"; then
    echo "these know where they were built or installed" >&2
    exit 1
fi

strict=(-Wall -Wextra -pedantic -Werror -fsyntax-only "-I$root/include")
for header in "$root"/include/cenote/*.h; do
    echo "#include \"cenote/${header##*/}\"" >"$temp/alone.c"
    "$cc" -std=c11 "${strict[@]}" "$temp/alone.c"
    if command -v "$cxx" >/dev/null; then
        "$cxx" -x c++ -std=c++17 "${strict[@]}" "$temp/alone.c"
    fi
done
command -v "$cxx" >/dev/null || echo "no C++ compiler here: headers tried as C11 only"

cat >"$temp/user.c" <<'EOF'
#include <stdio.h>
#include "cenote/cenote.h"
int main(void) {
    printf("%s %s\n", cen_version(), cen_status_text(CEN_OK));
    return 0;
}
EOF
expected=$("$root/bin/cenote" --version)
expected="${expected#cenote } success"
expect() { # what, command...
    local got
    got=$("${@:2}")
    [ "$got" = "$expected" ] || { echo "$1: '$got', not '$expected'" >&2; exit 1; }
}

export PKG_CONFIG_PATH=$lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs cenote)"
"$cc" "$temp/user.c" -o "$temp/by_pkg_config" "${flags[@]}"
expect "pkg-config, shared" env LD_LIBRARY_PATH="$lib" "$temp/by_pkg_config"
read -ra flags <<<"$(pkg-config --static --cflags --libs cenote)"
mkdir "$temp/only_static" && cp "$lib/libcenote.a" "$temp/only_static/"
"$cc" "$temp/user.c" -o "$temp/by_pkg_config_static" "-L$temp/only_static" "${flags[@]}"
expect "pkg-config, static" "$temp/by_pkg_config_static"

mkdir "$temp/project"
cat >"$temp/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(cenote 0.1 REQUIRED)
add_executable(shared ../user.c)
target_link_libraries(shared cenote::cenote)
add_executable(static ../user.c)
target_link_libraries(static cenote::static)
EOF
cmake -S "$temp/project" -B "$temp/project/build" -G Ninja -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$root" >"$temp/log" || { cat "$temp/log" >&2; exit 1; }
cmake --build "$temp/project/build" >"$temp/log" || { cat "$temp/log" >&2; exit 1; }
expect "find_package, shared" "$temp/project/build/shared"
expect "find_package, static" "$temp/project/build/static"
echo "installed, moved, and used by pkg-config and by find_package"
