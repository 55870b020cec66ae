"""Report tables and plot on puts and gets within a node, including rows that miss their goals."""
from report.samples import duration, quartiles, verdict
from report.tables import render

BULK_GOAL = 0.97     # share of memcpy's speed: 4 to 64 KiB, mapped memory
MEBIBYTE_GOAL = 0.95  # share for 1 MiB: of memcpy's if mapped, else of the bare system call's
FORMS = ("nbi", "nb", "many")

HEADER = ["row", "path", "ours", "GiB/s", "floor", "x floor", "UCX", "x UCX"]


def _cells(row):
    floor = [duration(row["floor_ns"]), f"{row['times_floor']:.2f}"] if "floor_ns" in row else ["-", "-"]
    ucx = [duration(row["ucx_ns"]), f"{row['times_ucx']:.2f}"] if "ucx_ns" in row else ["-", "-"]
    return [row["name"].replace("_", " "), row["path"], duration(row["ns"]), f"{row['gib_per_s']:.2f}",
            *floor, *ucx]


def facts_of(table):
    """The goals that apply to a run of rma_bench: blocking operations without a forced path."""
    facts = []
    if table["forced_path"] != "auto":
        return facts
    for row in table["rows"]:
        if row["form"] != "blocking" or "times_floor" not in row:
            continue
        if row["memory"] == "segment" and 4096 <= row["bytes"] <= 65536:
            goal, beside = BULK_GOAL, "memcpy"
        elif 1 << 19 <= row["bytes"] <= 1 << 20:
            goal = MEBIBYTE_GOAL
            beside = "memcpy" if row["memory"] == "segment" else "the bare system call"
        else:
            continue
        low = quartiles(row["times_floor_samples"])[0]
        facts.append({"what": f"{row['direction']} of {row['bytes']} bytes, {row['memory']}",
                      "value": 1 / row["times_floor"], "goal": f">= {goal} x {beside}",
                      "kept": verdict(row["times_floor"], 1 / goal, low)})
    return facts


def exchange(tables_of_jobs):
    """(title, text, facts) of rma_bench, one table per forced path."""
    parts, facts = [], []
    for table in tables_of_jobs:
        path = table["forced_path"]
        heading = "the library chooses" if path == "auto" else f"HYDRANT_PATH={path}"
        judged = facts_of(table)
        parts.append(f"Paths: {heading}.\n\n" + render(HEADER, [_cells(row) for row in table["rows"]]))
        if judged:
            parts.append(render(["goal", "found", "wanted", "kept"],
                                [[fact["what"], f"{fact['value']:.2f}", fact["goal"], fact["kept"]]
                                 for fact in judged]))
        facts += judged
    parts.append("Time per operation. segment: mapped here; heap: not. The floor is the bare copy of the "
                 "same pages: memcpy, process_vm_readv or process_vm_writev. nbiN, nbN, manyN: N operations "
                 "and one wait. ./run --peers compares with GASNet's smp-conduit.")
    return "Puts and gets between two ranks", "\n\n".join(parts), facts


def short(tables_of_jobs):
    """The section for the console."""
    wanted = {(memory, direction, form, size)
              for memory in ("segment", "heap") for direction in ("put", "get")
              for form, size in (("constant", 8), ("blocking", 8), ("blocking", 4099), ("blocking", 65521),
                                 ("blocking", 1048573))}
    body = [_cells(row) for table in tables_of_jobs for row in table["rows"]
            if (row["memory"], row["direction"], row["form"], row["bytes"]) in wanted]
    body += [_cells(row) for table in tables_of_jobs for row in table["rows"]
             if row["form"] in FORMS and row["batch"] == 256 and row["bytes"] == 8]
    if not body:
        return ""
    return "\n".join(["Puts and gets between two ranks (floor: the bare copy of the same pages)",
                      render(HEADER, body)])


def series(tables_of_jobs, direction):
    """Label -> [(bytes, ns)] for the plot: ours by path, floors and UCX by memory."""
    lines = {}
    for table in tables_of_jobs:
        for row in table["rows"]:
            if row["form"] != "blocking" or row["direction"] != direction:
                continue
            forced = table["forced_path"] != "auto"
            where = row["memory"]
            label = f"ours, Active Messages, {where}" if forced else f"ours, {where}"
            lines.setdefault(label, []).append((row["bytes"], row["ns"]))
            if forced:
                continue
            if "floor_ns" in row:
                bare = "memcpy" if where == "segment" else "process_vm_readv/writev"
                lines.setdefault(bare, []).append((row["bytes"], row["floor_ns"]))
            if "ucx_ns" in row:
                lines.setdefault(f"UCX, {where}", []).append((row["bytes"], row["ucx_ns"]))
    return lines
