"""Report tables on Active Messages and barriers within a node, including rows that miss their goals."""
import json

from report.tables import render

ROUND_TRIP_GOAL = 1.6  # times the floor
CLIFF_GOAL = 1.15  # ratio of a Medium of 256 bytes to one of 8


def load(path):
    """Reads the JSON object that a job's program has written."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _row(table, name):
    return next((row for row in table["rows"] if row["name"] == name), None)


def _judge(value, goal):
    return "yes" if value <= goal else "NO"


def facts_of_messages(table):
    """The goals that apply to a run of am_bench."""
    facts = []
    short = _row(table, "short_round_trip")
    if short and table["ranks"] == 2:
        facts.append({"what": "AM short round trip, 2 ranks", "value": short["times_floor"],
                      "goal": f"<= {ROUND_TRIP_GOAL} x the floor",
                      "kept": _judge(short["times_floor"], ROUND_TRIP_GOAL)})
    small, large = (_row(table, f"medium_{size}_round_trip") for size in (8, 256))
    if small and large and table["ranks"] == 2:
        ratio = large["ns"] / small["ns"]
        facts.append({"what": "AM medium 256 B beside 8 B, round trip", "value": ratio,
                      "goal": f"<= {CLIFF_GOAL} x", "kept": _judge(ratio, CLIFF_GOAL)})
    return facts


def _cells(row):
    ucx = [f"{row['ucx_ns']:.0f}", f"{row['times_ucx']:.2f}"] if "ucx_ns" in row else ["-", "-"]
    return [row["name"].replace("_", " "), f"{row['ns']:.0f}", f"{row['best_ns']:.0f}",
            f"{row['worst_ns']:.0f}", f"{row['times_floor']:.2f}", *ucx]


HEADER = ["row", "ns", "best", "worst", "x floor", "UCX ns", "x UCX"]


def messages(tables_of_jobs):
    """(title, text, facts) of am_bench, one table for each number of ranks."""
    parts, facts = [], []
    for table in tables_of_jobs:
        parts.append(f"{table['ranks']} ranks; the floor, a line passed back and forth: "
                     f"{table['floor_round_trip_ns']:.0f} ns.\n\n" +
                     render(HEADER, [_cells(row) for row in table["rows"]]))
        facts += facts_of_messages(table)
    parts.append("GASNet's own smp-conduit is not packaged: docs/conformance.md says how to run it "
                 "beside this.")
    return "Active Messages between the ranks of a node", "\n\n".join(parts), facts


def _tables_beside_the_floor(tables_of_jobs):
    parts = []
    for table in tables_of_jobs:
        body = [[row["name"].replace("_", " "), f"{row['ns']:.0f}", f"{row['best_ns']:.0f}",
                 f"{row['worst_ns']:.0f}", f"{row['times_floor']:.2f}"] for row in table["rows"]]
        parts.append(f"{table['ranks']} ranks; the floor: {table['floor_round_trip_ns']:.0f} ns.\n\n" +
                     render(HEADER[:5], body))
    return "\n\n".join(parts)


def barriers(tables_of_jobs):
    """(title, text, facts) of barrier_bench."""
    return "Barriers between the ranks of a node", _tables_beside_the_floor(tables_of_jobs), []


def collectives(tables_of_jobs):
    """(title, text, facts) of coll_bench."""
    return "Collectives between the ranks of a node", _tables_beside_the_floor(tables_of_jobs), []


def short(tables_of_messages, tables_of_barriers, tables_of_collectives):
    """The section for the console."""
    lines = ["Active Messages, barriers and collectives, ns (medians; x floor: a line passed back and forth)"]
    body = []
    wanted = ("short_round_trip", "short_flood", "medium_256_round_trip", "medium_65536_flood")
    for table in tables_of_messages:
        for row in table["rows"]:
            if row["name"] in wanted:
                body.append([f"{table['ranks']} ranks", *_cells(row)])
    for table in tables_of_barriers:
        for row in table["rows"]:
            if row["name"] in ("unnamed", "named", "gex_nb"):
                body.append([f"{table['ranks']} ranks", "barrier, " + row["name"], f"{row['ns']:.0f}",
                             f"{row['best_ns']:.0f}", f"{row['worst_ns']:.0f}",
                             f"{row['times_floor']:.2f}", "", ""])
    for table in tables_of_collectives:
        for row in table["rows"]:
            if row["name"] in ("reduce_all_8", "reduce_all_4096", "reduce_all_1048576", "broadcast_8"):
                body.append([f"{table['ranks']} ranks", row["name"].replace("_", " "), f"{row['ns']:.0f}",
                             f"{row['best_ns']:.0f}", f"{row['worst_ns']:.0f}",
                             f"{row['times_floor']:.2f}", "", ""])
    if not body:
        return ""
    return "\n".join([*lines, render(["job", *HEADER], body)])
