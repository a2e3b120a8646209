#!/usr/bin/env python3
"""Keeps what README.md shows true: transcripts of commands, and a function of an example.

Between "<!-- begin: transcript -->" and "<!-- end -->" stand the outputs of the commands that begin
with "$ ", run in the source tree; between "<!-- begin: FILE FUNCTION -->" and "<!-- end -->" that
function with the comment above it. Rewrites README.md, or with --check fails if it would differ.

usage: tools/update_readme.py [--check] [CENOTE]     CENOTE is the program, build/cenote if not given
"""

import difflib
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"(<!-- begin: ([^>]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def run(command, cenote):
    words = shlex.split(command)
    if words[0] == "cenote":
        words[0] = cenote
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"README.md: '{command}' exits with {done.returncode}: {done.stderr.strip()}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def transcript(text, cenote):
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    parts = [f"$ {command}\n{run(command, cenote)}" for command in commands]
    return "```\n" + "\n\n".join(parts) + "\n```\n"


def function(file, name):
    source = (ROOT / file).read_text()
    found = re.search(rf"(?:/\*(?:(?!\*/).)*\*/\n)?^\w[^\n;]*\b{name}\([^;{{]*\{{\n.*?^\}}\n", source,
                      re.DOTALL | re.MULTILINE)
    if not found:
        sys.exit(f"README.md: {file} has no function {name}")
    return f"```c\n{found[0]}```\n"


def main():
    args = sys.argv[1:]
    check = "--check" in args
    args = [a for a in args if a != "--check"]
    cenote = str(Path(args[0]).resolve()) if args else str(ROOT / "build/cenote")
    readme = ROOT / "README.md"

    def fresh(match):
        begin, what, text, end = match.groups()
        body = transcript(text, cenote) if what == "transcript" else function(*what.split())
        return begin + body + end

    before = readme.read_text()
    after = SECTION.sub(fresh, before)
    if not check:
        readme.write_text(after)
        return 0
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "README.md", "as it is")
    sys.stdout.writelines(lines)
    if after != before:
        print("README.md is out of date: run tools/update_readme.py", file=sys.stderr)
    return after != before


if __name__ == "__main__":
    sys.exit(main())
