#!/usr/bin/env python3
"""Fills the tables at the end of docs/hierarchy.md from bench/probes/<machine>.json, as `cenote probe --json` writes them.

usage: tools/make_hierarchy.py [--check] [ROOT]
With --check nothing is written: the exit status is 1 if the page is not what would be written.
"""

import json
import sys
from pathlib import Path

MARK = "<!-- What follows is made by tools/make_hierarchy.py from bench/probes/; do not edit. -->\n"
COLUMNS = ("level", "capacity", "latency", "bandwidth, GB/s", "of the peak", "pJ a byte", "published")
# What others measured or promise of the same kind of device, and where: by the device's name and level.
PUBLISHED = {
    ("NVIDIA H200", "shared"): "30 cycles on an H100 (mt4g)",
    ("NVIDIA H200", "L1"): "38 cycles on an H100 (mt4g), 40 on a GH200 (AI_kernels); 33,000 GB/s by 126 bytes a cycle "
                           "(gpu-benches)",
    ("NVIDIA H200", "L2"): "219 cycles on an H100 (mt4g), 281 on a GH200 (AI_kernels); 9,800 to 10,200 GB/s up to 28 MB "
                           "(gpu-benches)",
    ("NVIDIA H200", "HBM"): "834 cycles on an H100 (mt4g), 690 on a GH200 (AI_kernels); 3,890 GB/s read, 3,880 written, "
                            "3,530 triad (gpu-benches); 4,800 (datasheet)",
    ("NVIDIA H200", "link"): "53 to 55 GB/s of 64 (datasheet)",
    ("NVIDIA H200", "peer"): "310 to 380 GB/s of 450 (datasheet)",
}
ACCESSES = ("read", "write", "copy", "triad")


def amount(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def capacity(level):
    if "capacity_bytes" not in level:
        return ""
    text = amount(level["capacity_bytes"])
    unit = level.get("unit_bytes")
    return f"{text}, {amount(unit)} each" if unit and unit != level["capacity_bytes"] else text


def latency(level):
    if "latency_ns" not in level:
        return ""
    text = f"{figure(level['latency_ns'])} ns"
    return f"{text}, {figure(level['latency_cycles'])} cycles" if "latency_cycles" in level else text


def bandwidth(level, device):
    """By access where there are those; of a host by all threads. Else the level's own."""
    found = {}
    for transfer in device.get("transfers", ()):
        if transfer["level"] == level["level"] and transfer["access"] in ACCESSES:
            found[transfer["access"]] = max(found.get(transfer["access"], 0), transfer["gbps"])
    if found:
        return ", ".join(f"{figure(found[access])} {access}" for access in ACCESSES if access in found)
    return figure(level["bandwidth_gbps"]) if "bandwidth_gbps" in level else ""


def peak(level):
    share = level.get("bandwidth_gbps", 0) / level["peak_gbps"] if "peak_gbps" in level else 0
    return f"{share:.0%}" if share else ""


def row(level, device):
    energy = level.get("picojoules_per_byte")
    return (level["level"], capacity(level), latency(level), bandwidth(level, device), peak(level),
            figure(energy) if energy else "", PUBLISHED.get((device.get("name"), level["level"]), ""))


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def section(path):
    probe = json.loads(path.read_text())
    text = f"\n### {path.stem}\n"
    for number, device in enumerate(probe["devices"]):
        text += f"\n{device.get('name', f'Device {number}')}, {probe['date']}:\n\n" if "date" in probe else "\n"
        text += line(COLUMNS) + line(["---"] * len(COLUMNS))
        text += "".join(line(row(level, device)) for level in device["levels"])
        left = [f"- {skipped['level']}: {skipped['reason']}\n" for skipped in device.get("skipped", ())]
        text += "\nNot measured:\n" + "".join(left) if left else ""
    drawing = path.with_suffix(".svg")
    if drawing.exists():
        text += f"\n![Latencies by size and bandwidths by level of {path.stem}](../bench/probes/{drawing.name})\n"
    return text


def page(root):
    head = (root / "docs" / "hierarchy.md").read_text().split(MARK)[0]
    return head + MARK + "".join(map(section, sorted((root / "bench" / "probes").glob("*.json"))))


def main():
    words = sys.argv[1:]
    check = words[:1] == ["--check"]
    root = Path(words[check]) if len(words) > check else Path(__file__).resolve().parent.parent
    wanted, path = page(root), root / "docs" / "hierarchy.md"
    if not check:
        path.write_text(wanted)
    elif path.read_text() != wanted:
        print("docs/hierarchy.md is out of date: run tools/make_hierarchy.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
