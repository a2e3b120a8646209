#!/usr/bin/env python3
"""Makes docs/benchmarks.md from bench/results/<machine>/<name>.json (docs/formats/bench-results.md).

usage: tools/make_benchmarks.py [--check] [ROOT]
With --check nothing is written: the exit status is 1 if the page is not what would be written.
"""

import json
import sys
import textwrap
from pathlib import Path

HEAD = """\
# Benchmarks

Made by tools/make_benchmarks.py from bench/results/; do not edit. Each figure is the median of several runs, with the
lowest and highest in brackets unless all were the same, beside a peer measured in the same run (the first, if there are
several, is the one compared with). The floor is what no implementation can pass.
"""
NOTHING = "\nNothing has been recorded yet.\n"
COLUMNS = ("figure", "cenote", "peer", "against the peer", "floor", "target")


class Malformed(Exception):
    """A results file is not as its format says."""


def need(condition, why):
    if not condition:
        raise Malformed(why)


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_measure(measure, where):
    need(number(measure.get("median")), f"{where}: median is no number")
    spread = measure.get("spread")
    need(isinstance(spread, list) and len(spread) == 2 and all(map(number, spread)),
         f"{where}: spread is not [lowest, highest]")
    need(spread[0] <= measure["median"] <= spread[1], f"{where}: the median is outside the spread")


def load(path):
    try:
        result = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error}") from error
    for key in ("name", "machine", "driver", "commit", "date"):
        need(isinstance(result.get(key), str) and result[key], f"{key} is missing")
    need(result["name"] == path.stem, f"name is {result['name']}, the file's is {path.stem}")
    need(result["machine"] == path.parent.name, "machine is not the folder's name")
    need("dirty" not in result["commit"], "measured on a tree with uncommitted changes")
    need(isinstance(result.get("about", ""), str), "about is no text")
    need(isinstance(result.get("figures"), list) and result["figures"], "no figures")
    seen = set()
    for figure in result["figures"]:
        what = figure.get("what")
        need(isinstance(what, str) and what and what not in seen, f"'{what}' is missing or twice there")
        seen.add(what)
        need(isinstance(figure.get("unit"), str), f"{what}: no unit")
        need(figure.get("better") in (None, "more", "less"), f"{what}: better is 'more' or 'less'")
        check_measure(figure, what)
        need(figure.get("floor") is None or (number(figure["floor"]) and figure.get("floor_reason")),
             f"{what}: a floor is a number with a floor_reason")
        if figure.get("peer") is not None:
            need(isinstance(figure["peer"].get("name"), str), f"{what}: the peer has no name")
            check_measure(figure["peer"], f"{what}, peer")
        else:
            need(figure.get("floor") is not None, f"{what}: neither a peer nor a floor")
        for other in figure.get("also", []):
            need(figure.get("peer") is not None and isinstance(other.get("name"), str), f"{what}: also without a peer or a name")
            check_measure(other, f"{what}, also")
    return result


def text(value):
    """Three significant digits, thousands in groups."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.6f}".rstrip("0")


def measure(m):
    low, high = m["spread"]
    if low == high:
        return text(low)
    return f"{text(m['median'])} [{text(low)}, {text(high)}]"


def more_is_better(figure):
    if figure.get("better"):
        return figure["better"] == "more"
    return "/s" in figure["unit"] or figure["unit"] in ("x", "%")


def against(figure):
    peer = figure.get("peer")
    if not peer or not peer["median"] or not figure["median"]:
        return ""
    ratio = figure["median"] / peer["median"]
    better = ratio if more_is_better(figure) else 1 / ratio
    return f"{better:.2f} x as good" if better >= 1 else f"{1 / better:.2f} x worse"


def row(figure):
    peer, floor = figure.get("peer"), figure.get("floor")
    peers = ([peer] if peer else []) + figure.get("also", [])
    cells = (
        f"{figure['what']}, {figure['unit']}",
        measure(figure),
        "; ".join(f"{p['name']}: {measure(p)}" for p in peers) or "none",
        against(figure),
        f"{text(floor)}: {figure['floor_reason']}" if floor is not None else "",
        text(figure["target"]) if number(figure.get("target")) else "",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(root):
    parts, machine = [HEAD], None
    for path in sorted((root / "bench" / "results").glob("*/*.json")):
        if path.parent.name == "local":
            continue
        try:
            result = load(path)
        except Malformed as error:
            raise Malformed(f"{path.relative_to(root).as_posix()}: {error}") from error
        if result["machine"] != machine:
            machine = result["machine"]
            parts.append(f"\n## {machine}\n")
        parts.append(f"\n### {result['name']}\n\nDriver {result['driver']}, commit {result['commit']}, "
                     f"{result['date']}.\n\n")
        if result.get("about"):
            parts.append(textwrap.fill(result["about"], 120, break_on_hyphens=False) + "\n\n")
        parts.append("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|\n")
        parts.extend(row(figure) + "\n" for figure in result["figures"])
    return "".join(parts) if machine else HEAD + NOTHING


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    target = root / "docs" / "benchmarks.md"
    try:
        wanted = page(root)
    except Malformed as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        if not target.exists() or target.read_text() != wanted:
            print("docs/benchmarks.md is out of date: run tools/make_benchmarks.py", file=sys.stderr)
            return 1
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
