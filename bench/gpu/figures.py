"""What the runs of the workloads come to: figures for bench/results (docs/formats/bench-results.md) and a short table.

A run is the record that workload.py writes, with "kind" (plain, capped or largest) and "repeat" put in by the runner.
"""

from __future__ import annotations

import statistics

from common import WAYS

GIB = 1 << 30
PEERS = {"native": "PyTorch's allocator", "expandable": "PyTorch's, expandable segments"}
ABOUT = ("Each workload of bench/gpu/ runs in a process of its own, under each allocator in turn, with the same sizes in "
         "the same order; a step lasts from one synchronisation to the next. Utilisation is the most bytes that tensors "
         "asked for at once, over the most that were held for them, from the first allocation on. Under a cap, all steps "
         "are done or the process ran out of memory after those given.")


def done(run: dict) -> int:
    """Steps done, those of the warm-up with them."""
    return len(run.get("warm_up_s", [])) + len(run.get("step_s", []))


def measure(values: list) -> dict:
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def select(runs: list, kind: str, workload: str, way: str) -> list:
    """Those that say something: under a cap that is also one which ran out of memory."""
    chosen = [r for r in runs if (r["kind"], r["workload"], r["allocator"]) == (kind, workload, way)]
    return [r for r in chosen if r.get("finished") or (kind == "capped" and r.get("oom"))]


def figure(what: str, unit: str, by_way: dict, **more) -> list:
    """One figure, or none where cenote or all its peers have no value."""
    peers = [{"name": PEERS[way], **measure(by_way[way])} for way in PEERS if by_way.get(way)]
    if not by_way.get("cenote") or not peers:
        return []
    rest = {"also": peers[1:]} if len(peers) > 1 else {}
    return [{"what": what, "unit": unit, **measure(by_way["cenote"]), "peer": peers[0], **rest, **more}]


def values(runs: list, kind: str, workload: str, take) -> dict:
    found = {way: [take(r) for r in select(runs, kind, workload, way)] for way in WAYS}
    return {way: [v for v in listed if v is not None] for way, listed in found.items()}


def plain(runs: list, name: str) -> list:
    asked = [r["peak_requested"] / GIB for r in select(runs, "plain", name, "cenote") if r.get("peak_requested")]
    floor = {"floor": min(asked), "floor_reason": "what its tensors ask for"} if asked else {}
    return [
        *figure(f"{name}, a step", "ms", values(runs, "plain", name, lambda r: r.get("step_ms", {}).get("median"))),
        *figure(f"{name}, measured steps together", "s", values(runs, "plain", name, lambda r: r.get("measured_s"))),
        *figure(f"{name}, utilisation", "%",
                values(runs, "plain", name, lambda r: 100 * r["utilisation"] if r.get("utilisation") else None)),
        *figure(f"{name}, most memory held", "GiB", values(
            runs, "plain", name, lambda r: r["peak_reserved"] / GIB if r.get("peak_reserved") else None), **floor),
    ]


def capped(runs: list, name: str) -> list:
    some = [r for r in runs if r["kind"] == "capped" and r["workload"] == name and r.get("steps")]
    if not some:
        return []
    goal = some[0]["warm_up"] + some[0]["steps"]
    label = f"{name}, cap of {some[0]['cap'] / GIB:.2f} GiB"
    return [
        *figure(f"{label}, steps done of {goal}", "steps", values(runs, "capped", name, done), better="more"),
        *figure(f"{label}, measured steps together", "s",
                values(runs, "capped", name, lambda r: r.get("measured_s") if r.get("finished") else None)),
    ]


def largest(runs: list, name: str) -> list:
    caps = {r["cap"] for r in runs if r["kind"] == "largest" and r["workload"] == name}
    return [f for cap in sorted(caps)
            for f in figure(f"{name}, largest batch under {cap / GIB:.3g} GiB", "in a batch",
                            values([r for r in runs if r["cap"] == cap], "largest", name, lambda r: r.get("largest")),
                            better="more")]


def figures(runs: list) -> list:
    runs = [r for r in runs if r.get("device") == "cuda"]  # the CPU's have no allocator to compare
    names = list(dict.fromkeys(r["workload"] for r in runs))
    return [f for name in names for part in (plain, capped, largest) for f in part(runs, name)]


def agreement(run: dict, other: dict | None) -> str:
    """How the results of a run compare with those of the native one, as far as both went."""
    pairs = list(zip(run.get("results", []), other.get("results", []))) if other else []
    if not pairs:
        return "-"
    apart = max(0 if a == b else abs(a - b) / max(abs(a), abs(b)) for a, b in pairs)
    # Not a number is not equal to itself, and max() may pass over it.
    if any(a != a or b != b for a, b in pairs):
        return "NaN"
    return "same bits" if apart == 0 else f"to {apart:.0e}"


def outcome(run: dict) -> str:
    if run.get("finished"):
        return "finished"
    return f"{'out of memory' if run.get('oom') else 'FAILED'} at {run.get('died_at')}"


def cells(run: dict, native: dict | None) -> tuple:
    def scaled(key, factor, digits):
        value = run.get(key)
        return "-" if value is None else f"{value * factor:.{digits}f}"

    last = f"largest {run['largest']}" if "largest" in run else agreement(run, native)
    step = f"{run['step_ms']['median']:.1f}" if "step_ms" in run else "-"
    return (run["workload"], run["kind"], run["allocator"], step, scaled("measured_s", 1, 2),
            scaled("peak_requested", 1 / GIB, 2), scaled("peak_reserved", 1 / GIB, 2),
            scaled("utilisation", 100, 1), str(run.get("alloc_retries", "-")), last, outcome(run))


def table(runs: list) -> str:
    head = ("workload", "kind", "allocator", "ms a step", "all, s", "asked GiB", "held GiB", "used %", "retries", "results",
            "end")
    rows = [head]
    for run in runs:
        native = next((r for r in runs if r["workload"] == run["workload"] and r["kind"] == "plain"
                       and r["allocator"] == "native"), None)
        rows.append(cells(run, native))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
