#!/usr/bin/python3
"""Draws a part of a trace as docs/tracing.png shows it.

draw_trace.py TRACE.json PICTURE.png [FROM TO]     TRACE.json is hydrant-trace's; FROM and TO are in us

Ranks are bands, calls are bars that contain the calls inside them, and arrows lead from messages to handlers.
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # the backend must be chosen first

BAND = 3.6  # height of a rank
COLOURS = {"puts": "#4c78a8", "gets": "#72b7b2", "messages": "#f58518", "library": "#b0b0b0", "waits": "#e8e2d0",
           "barriers": "#54a24b", "collectives": "#b279a2", "polls": "#f2efe6", "objects": "#9d755d"}


def nested(spans):
    """[(span, depth)]: a span inside another is one deeper."""
    result, open_ends = [], []
    for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        while open_ends and open_ends[-1] <= span["ts"]:
            open_ends.pop()
        result.append((span, len(open_ends)))
        open_ends.append(span["ts"] + span["dur"])
    return result


def label_of(span):
    name = span["name"].replace("gex_RMA_", "").replace("gex_Coll_", "").replace("gex_", "")
    return name.split(", handler ")[0]


def draw(axes, events, first, last):
    ranks = sorted({event["pid"] for event in events})
    places, used = {}, set()
    for rank in ranks:
        spans = [event for event in events if event["pid"] == rank and event["ph"] == "X"
                 and event["ts"] < last and event["ts"] + event["dur"] > first]
        for span, depth in nested(spans):
            low = -BAND * ranks.index(rank) - 0.8 * depth
            axes.barh(low, span["dur"], left=span["ts"], height=0.7, edgecolor="#505050", linewidth=0.4,
                      color=COLOURS.get(span["cat"], "#dddddd"))
            used.add(span["cat"])
            places[(rank, span["ts"])] = low
            shown = min(span["ts"] + span["dur"], last) - max(span["ts"], first)
            if shown > 0.012 * (last - first) * len(label_of(span)) * 0.72:
                axes.text(max(span["ts"], first) + shown / 2, low, label_of(span), ha="center", va="center",
                          fontsize=6.5, clip_on=True)
    flows = {}
    for event in events:
        if event["ph"] in "sf":
            flows.setdefault(event["id"], {})[event["ph"]] = event
    for ends in flows.values():
        if len(ends) < 2 or not (first <= ends["s"]["ts"] and ends["f"]["ts"] <= last):
            continue
        start, end = ((event["ts"], places.get((event["pid"], event["ts"]))) for event in (ends["s"], ends["f"]))
        if None in (*start, *end) or ends["s"]["pid"] == ends["f"]["pid"]:
            continue
        colour = "#c03020" if "request" in ends["s"]["id"] else "#2050b0"
        axes.annotate("", xy=end, xytext=start,
                      arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0})
    for category in sorted(used):
        axes.barh(0, 0, color=COLOURS.get(category, "#dddddd"), label=category, edgecolor="#505050", linewidth=0.4)
    axes.set_yticks([-BAND * i for i in range(len(ranks))], [f"rank {rank}" for rank in ranks])
    axes.set_xlim(first, last)
    axes.set_ylim(-BAND * len(ranks) + 0.9, 0.6)
    axes.set_xlabel("µs")


def main():
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] in "Xsf"]
    first = float(sys.argv[3]) if len(sys.argv) == 5 else min(event["ts"] for event in events)
    last = float(sys.argv[4]) if len(sys.argv) == 5 else max(event["ts"] for event in events)
    for event in events:
        event["ts"] -= first
    figure, axes = plt.subplots(figsize=(11, 3.8))
    draw(axes, events, 0, last - first)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=9, fontsize=7, frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=130)


if __name__ == "__main__":
    main()
