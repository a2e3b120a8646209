#!/usr/bin/env bash
# Prints the Python that tests run with: of python3 in PATH and the system's own the first that has NumPy, with which
# codecs are compared, else python3 in PATH. Exit status: 0 if it has NumPy, else 1.
set -euo pipefail
for python in "$(command -v python3 || true)" /usr/bin/python3; do
    if [ -x "$python" ] && "$python" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
        "$python" -c 'import sys; print(sys.executable)'
        exit 0
    fi
done
command -v python3 || true
exit 1
