#!/usr/bin/env python3
"""Writes bash's completion for cenote from the command table that the binary itself lists.

usage: tools/make_completion.py CENOTE OUTPUT
"""

import re
import subprocess
import sys
from pathlib import Path

TEMPLATE = """\
# bash completion for cenote, made from its command table
_cenote() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '{commands} --help --version' -- "$word")
        return
    fi
    case ${{COMP_WORDS[1]}}${{COMP_WORDS[COMP_CWORD - 1]}} in # an option's value, where it is one of a few
{values}
    esac
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    # Files, unless an option or a command is being typed.
    if [ ${{#COMPREPLY[@]}} -eq 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -o filenames -F _cenote cenote
"""
VALUE = "    {name}{option}) mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$word\"); return ;;"
CASE = "    {name}) {guard}mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$word\") ;;"


def main():
    binary, output = sys.argv[1:]
    listing = subprocess.run([binary, "help", "--commands"], check=True, capture_output=True, text=True)
    rows = [line.split("\t") for line in listing.stdout.splitlines()]
    names = " ".join(row[0] for row in rows)
    cases, values = [], []
    for name, args, _summary in rows:
        words = names if name == "help" else " ".join([*re.findall(r"(?<!\S)\[?(-o|--[a-z][a-z0-9-]*)", args), "--help"])
        for option, choice in re.findall(r"(--[a-z0-9-]+) ([a-z0-9][a-z0-9_:]*(?:\|[a-z0-9][a-z0-9_:]*)+)", args):
            values.append(VALUE.format(name=name, option=option, words=choice.replace("|", " ")))
        guard = "" if name == "help" else "[[ $word != -* ]] || "
        cases.append(CASE.format(name=name, guard=guard, words=words))
    out = Path(output)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(TEMPLATE.format(commands=names, values="\n".join(values), cases="\n".join(cases)))


if __name__ == "__main__":
    main()
