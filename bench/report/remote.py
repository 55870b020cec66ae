"""Report tables and plot on puts over remote pins, including cells that miss their goals."""
from report.samples import duration, gib_per_s
from report.tables import render

WAYS = ("firehose", "rendezvous_unpin", "rendezvous_keep", "bounce", "pin_everything")
NAMES = {"firehose": "firehose", "rendezvous_unpin": "rendezvous, unpin",
         "rendezvous_keep": "rendezvous, keep", "bounce": "bounce", "pin_everything": "pin everything"}
AGAINST = {"of_rendezvous_unpin": ("x rendezvous, unpin", ">= 1 x rendezvous with unpin"),
           "of_rendezvous_keep": ("x rendezvous, keep", ">= 1 x rendezvous without unpin"),
           "of_pin_everything": ("x pin everything", ">= 0.95 x pin everything, in the budget")}
SHORT_PERCENTS = (10, 50, 100, 150, 200, 400)
SHORT_DELAY = 2


def _figure(cell, way):
    """ns of 8 bytes, GiB/s of larger puts."""
    found = cell["ways"][way]
    if "ns" not in found:
        return "refused"
    return duration(found["ns"]) if cell["bytes"] == 8 else f"{gib_per_s(cell['bytes'], found['ns']):.2f}"


def _against(cell, key):
    if key not in cell:
        return "-"
    return f"{cell[key]['ratio']:.2f} {cell[key]['kept']}"


def _line(cell):
    ours = cell["ways"]["firehose"]
    counts = [f"{ours[key]:.3f}" if key in ours else "-" for key in ("hit_rate", "messages", "registrations")]
    return [f"{cell['percent']} %", f"{cell['delay_us']:g}", *(_figure(cell, way) for way in WAYS),
            *(_against(cell, key) for key in AGAINST), *counts]


HEADER = ["set / budget", "delay, us", *NAMES.values(), *(name for name, _ in AGAINST.values()), "hits",
          "messages", "registrations"]


def _tables(table):
    parts = []
    for pattern in ("uniform", "zipf"):
        for size in sorted({cell["bytes"] for cell in table["sweep"]}):
            body = [_line(cell) for cell in table["sweep"]
                    if cell["bytes"] == size and cell["pattern"] == pattern]
            what = "8 bytes, one at a time: latency" if size == 8 else f"{size >> 10} KiB, 8 under way: GiB/s"
            if body:
                parts.append(f"{what}; places {pattern}.\n\n" + render(HEADER, body))
    return parts


def _kernels(table):
    body = []
    for row in table["kernels"]:
        if "ns" not in row:
            body.append([row["kernel"], NAMES[row["way"]], row.get("refusal", "")] + [""] * 5)
            continue
        body.append([row["kernel"], NAMES[row["way"]], row["puts"], duration(row["ns"]),
                     f"{row['times_firehose']:.2f}", f"{row['hit_rate']:.4f}" if "hit_rate" in row else "-",
                     f"{row['messages']:.3f}",
                     f"{row['registrations']:.3f}"])
    return render(["kernel", "way", "puts", "a rank's time per put", "x firehose", "hits", "messages",
                   "registrations"], body)


def _sharing(table):
    return render(["initiators", "pages", "registrations per page", "moves per page", "about 1"],
                  [[row["initiators"], row["pages"], f"{row['registrations_per_page']:.2f}",
                    f"{row['moves_per_page']:.2f}", row["kept"]] for row in table["sharing"]])


def _leases(table):
    return render(["each set / budget", "hits, leased", "hits, fixed split", "ratio", ">= 1.5"],
                  [[f"1/{1 / row['set_share']:.0f}", f"{row['leased_hit_rate']:.3f}",
                    f"{row['fixed_hit_rate']:.3f}", f"{row['ratio']:.2f}", row["kept"]]
                   for row in table["leases"]])


def _facts(table):
    facts = []
    for cell in table["sweep"]:
        where = f"{cell['bytes']} bytes, {cell['percent']} %, {cell['delay_us']:g} us, {cell['pattern']}"
        facts += [{"what": f"firehose: {where}", "value": cell[key]["ratio"], "goal": goal,
                   "kept": cell[key]["kept"]} for key, (_, goal) in AGAINST.items() if key in cell]
    facts += [{"what": f"registrations per page, {row['initiators']} initiators",
               "value": row["registrations_per_page"], "goal": "about 1", "kept": row["kept"]}
              for row in table["sharing"]]
    facts += [{"what": f"leased beside fixed hits, sets of 1/{1 / row['set_share']:.0f}",
               "value": row["ratio"], "goal": ">= 1.5 x", "kept": row["kept"]} for row in table["leases"]]
    return facts


def remote(tables_of_runs):
    """(title, text, facts) of firehose_bench."""
    parts, facts = [], []
    for table in tables_of_runs:
        parts += _tables(table)
        parts += ["Kernels, 16 ranks, 2 us:\n\n" + _kernels(table),
                  "P initiators, the same pages:\n\n" + _sharing(table),
                  "6 of 64 peers active:\n\n" + _leases(table)]
        facts += _facts(table)
        parts.append(f"Budget {table['budget_bytes'] >> 10} KiB, real pins ({table['registrar']}), a wire of "
                     f"{table['wire_gbits']:g} Gbit/s; time is that of clocks of the ranks' own, which "
                     "bench/firehose_bench.cpp explains.")
    return "Puts to memory that peers have to pin: firehose and rendezvous", "\n\n".join(parts), facts


def short(tables_of_runs):
    """The section for the console."""
    body = []
    for table in tables_of_runs:
        for cell in table["sweep"]:
            if cell["pattern"] != "uniform" or cell["delay_us"] != SHORT_DELAY or \
                    cell["percent"] not in SHORT_PERCENTS:
                continue
            ours = cell["ways"]["firehose"]
            body.append(["8 B" if cell["bytes"] == 8 else "64 KiB, GiB/s", f"{cell['percent']} %",
                         *(_figure(cell, way) for way in WAYS),
                         f"{ours['hit_rate']:.3f}" if "ns" in ours else "-"])
    if not body:
        return ""
    facts = [fact for table in tables_of_runs for fact in _facts(table)]
    lost = sum(fact["kept"] == "NO" for fact in facts)
    return "\n".join([f"Firehose and rendezvous: random puts, {SHORT_DELAY} us to the other side, by working "
                      "set / budget",
                      render(["put", "set", "firehose", "rdv unpin", "rdv keep", "bounce", "pin all", "hits"],
                             body),
                      f"Of {len(facts)} cells and goals, all delays, {lost} missed: report.md marks each."])


def series(table, size, delay_us, way):
    """[(percent, ns)] for the plot."""
    return [(cell["percent"], cell["ways"][way]["ns"]) for cell in table["sweep"]
            if cell["bytes"] == size and cell["delay_us"] == delay_us and cell["pattern"] == "uniform" and
            "ns" in cell["ways"][way]]
