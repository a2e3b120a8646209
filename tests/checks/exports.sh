#!/usr/bin/env bash
# The shared library shows cen_ symbols and nothing else; the static one adds only ceni_.
#
# usage: tests/checks/exports.sh BUILD
set -euo pipefail
build=$1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

stray=$(nm -D --defined-only "$build/libcenote.so" | awk '$2 != "A" { print $3 }' | grep -v '^cen_' || true)
if [ -n "$stray" ]; then
    printf 'libcenote.so shows what is not public:\n%s\n' "$stray" >&2
    exit 1
fi
stray=$(nm -g --defined-only "$build/libcenote.a" 2>/dev/null | awk 'NF == 3 { print $3 }' |
    grep -v '^ceni\?_' || true)
if [ -n "$stray" ]; then
    printf 'libcenote.a shows names without our prefix:\n%s\n' "$stray" >&2
    exit 1
fi

# The interposer shows dlsym and functions of the CUDA driver, and brings no library along that could
# stand before a program's own.
stray=$(nm -D --defined-only "$build/libcenote_preload.so" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' |
    grep -v -e '^cu[A-Z]' -e '^dlsym$' || true)
brought=$(readelf -d "$build/libcenote_preload.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -v -e '^lib\(c\|m\|dl\|pthread\|gcc_s\)\.so' -e '^ld-linux' || true)
if [ -n "$stray$brought" ]; then
    printf 'libcenote_preload.so shows or needs what it should not:\n%s\n' "$stray$brought" >&2
    exit 1
fi

# And every function that a public header declares is there.
nm -D --defined-only "$build/libcenote.so" | awk '{ sub("@.*", "", $3); print $3 }' | sort -u >"$temp/shown"
for header in include/cenote/*.h; do
    tr '\n' ' ' <"$header" | grep -o 'CEN_API [^;(]*(' | grep -o 'cen_[a-z0-9_]*($' | tr -d '(' |
        sort -u >"$temp/declared" || continue
    missing=$(comm -23 "$temp/declared" "$temp/shown")
    if [ -n "$missing" ]; then
        printf '%s declares what libcenote.so does not have:\n%s\n' "$header" "$missing" >&2
        exit 1
    fi
done

# A library that is loaded late shares about 1.6 KiB of thread-local room with all others.
for library in libcenote.so libcenote_preload.so; do
    bytes=$(($(readelf -lW "$build/$library" | awk '$1 == "TLS" { print $6 }')))
    if [ "$bytes" -gt 1024 ]; then
        echo "$library has $bytes bytes of thread-local variables, more than 1024" >&2
        exit 1
    fi
done
echo "$(grep -c '^cen_' "$temp/shown") functions shown"
