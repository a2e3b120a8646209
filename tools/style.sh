#!/usr/bin/env bash
# Formatting, as .clang-format says: --check reports what differs, --fix rewrites it. Each major
# version of clang-format has its own idea, so only the one used here (Debian 12's) is asked.
set -euo pipefail
cd "$(dirname "$0")/.."
want=14

tool=
for candidate in clang-format-$want clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q "version $want\."; then
        tool=$candidate
        break
    fi
done
if [ -z "$tool" ]; then
    echo "formatting: not checked, no clang-format $want here"
    [ "${1:-}" != --fix ] || exit 1
    exit 0
fi
mapfile -d '' files < <(find include src cli preload tests bench examples -name '*.[ch]' -print0 2>/dev/null)
case ${1:-} in
--check) "$tool" --dry-run -Werror "${files[@]}" && echo "formatting: ${#files[@]} files in order" ;;
--fix) "$tool" -i "${files[@]}" ;;
*)
    echo "usage: tools/style.sh --check | --fix" >&2
    exit 2
    ;;
esac
