"""The report's tables: ours, floors, peers, ratios and goals, including rows that miss their goals."""
import math

from report.samples import difference_low, duration, quartiles, ratio_interval, thread_counts, verdict

REGIONS = (1, 16, 1024, 65536)
HIT_GOALS_NS = {1: 5.0, 1024: 6.0, 65536: 20.0}
THREAD_GOAL = 1.1        # ratio of all cores to one core
PEER_GOAL = 10.0         # geometric mean over the best peer
FIRST_PIN_EXTRA_NS = 1000.0
FIRST_PIN_RATIO, FIRST_PIN_RATIO_FROM = 1.05, 64 * 1024
FIRST_PIN_EXTRA, FIRST_PIN_FACTOR = "<= bare + 1 us", f"<= {FIRST_PIN_RATIO:g} x"
STALL_POINTS = 2.0
BYTES_PER_REGION, BYTES_PER_TOUCH = 192, 4


def render(header, rows):
    """A table in Markdown that also reads well as plain text."""
    cells = [header] + rows
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |"
             for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def hits(rows):
    """(title, text, facts) of hold + release."""
    threads = thread_counts(rows)
    body, facts, ratios = [], [], []
    for regions in REGIONS:
        for count in threads:
            body.append(_hit_row(rows, regions, count, facts, ratios))
    text = [render(["regions x threads", "ours, region mode", "ours, page mode", "UCX rcache",
                    "locked inc+dec", "empty loop", "UCX / ours", "goal (ns)", "kept", "vs 1 thread",
                    "kept"], body),
            "", "ns per hold + release per thread: median (quartiles) over the repetitions of the "
            "median batches.", "'kept' looks at the slower of the two modes."]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        text.append(f"Geometric mean of UCX / ours (slower mode) over {len(ratios)} rows: {mean:.1f} "
                    f"(goal {PEER_GOAL:g}: {'yes' if mean >= PEER_GOAL else 'NO'})")
        facts.append({"what": "geometric mean of UCX / ours", "value": mean, "goal": PEER_GOAL,
                      "kept": mean >= PEER_GOAL})
    else:
        text.append("UCX is absent from this build: install libucx-dev and build again for its column.")
    if rows.matching("hydrant/region-key/"):
        text += ["", render(["regions x threads", "4 KiB pages", "4 KiB inside a region", "UCX, same",
                             "reading the key", "UCX, same"], _hit_variants(rows, threads))]
    return "Hits: hold and release of pinned memory", "\n".join(text), facts


def _hit_row(rows, regions, threads, facts, ratios):
    end = f"/regions:{regions}/threads:{threads}"
    modes = {mode: rows.holds(f"hydrant/{mode}{end}") for mode in ("region", "page")}
    present = {mode: samples for mode, samples in modes.items() if samples}
    slower = max(present, key=lambda mode: quartiles(present[mode])[1], default=None)
    ucx = rows.holds(f"ucx{end}")
    goal = HIT_GOALS_NS.get(regions)
    kept = alone_text = alone_kept = ratio_text = ""
    if slower:
        middle = quartiles(present[slower])[1]
        if goal:
            kept = verdict(middle, goal, quartiles(present[slower])[0])
            facts.append({"what": f"hold + release{end}", "value": middle, "goal": goal, "kept": kept})
        if threads > 1:
            alone = {mode: rows.holds(f"hydrant/{mode}/regions:{regions}/threads:1") for mode in present}
            worst = max((ratio_interval(present[mode], alone[mode]) for mode in present),
                        key=lambda ratio: ratio[0])
            alone_text = f"{worst[0]:.2f} ({worst[1]:.2f}-{worst[2]:.2f})"
            alone_kept = verdict(worst[0], THREAD_GOAL, worst[1])
            facts.append({"what": f"against one thread{end}", "value": worst[0], "goal": THREAD_GOAL,
                          "kept": alone_kept})
        if ucx:
            ratios.append(quartiles(ucx)[1] / middle)
            ratio_text = f"{ratios[-1]:.1f}"
    return [f"{regions} x {threads}", spread(modes["region"]), spread(modes["page"]), spread(ucx),
            spread(rows.holds(f"floor/locked{end}")), spread(rows.holds(f"floor/empty{end}")), ratio_text,
            f"<= {goal:g}" if goal else "-", kept, alone_text, alone_kept]


def _hit_variants(rows, threads):
    body = []
    for regions in REGIONS:
        for count in threads:
            end = f"/regions:{regions}/threads:{count}"
            body.append([f"{regions} x {count}"] + [
                spread(rows.holds(name + end)) for name in
                ("hydrant/page4k", "hydrant/region-inside", "ucx-inside", "hydrant/region-key", "ucx-key")])
    return body


def spread(values):
    if not values:
        return "absent"
    low, middle, high = quartiles(values)
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def misses(rows):
    """(title, text, facts) of registrations beside the bare call."""
    body, facts = [], []
    for operation in ("first_pin", "pin_after_eviction", "release_unpin"):
        for name in sorted(rows.matching(operation + "/"), key=_miss_order):
            body.append(_miss_row(rows, name, operation, facts))
    text = [render(["operation", "registrar", "bytes", "pages", "others", "ours", "bare call",
                    "difference", "ratio", FIRST_PIN_EXTRA, FIRST_PIN_FACTOR], body),
            "", "Medians; 'bare call' is the registration itself with as many other regions in the table, "
            "taken in turn with ours.",
            "Goals of a first pin: at most 1 us over the bare call at every size, and from 64 KiB on at most "
            f"{FIRST_PIN_RATIO:g} times the bare call, too."]
    return "Misses: real pins beside the bare call", "\n".join(text), facts


def _miss_order(name):
    operation, registrar, size, pages, others = name.split("/")
    return operation, registrar != "uring", int(size.split(":")[1]), pages, int(others.split(":")[1])


def _miss_row(rows, name, operation, facts):
    _, registrar, size, pages, others = name.split("/")
    size, pages, others = (part.split(":")[1] for part in (size, pages, others))
    if name in rows.skipped:
        return [operation, registrar, size, pages, others, "skipped", "", "", "", "", ""]
    ours, bare = rows.median(name, "ours_ns"), rows.median(name, "bare_ns")
    ratio, low, _ = ratio_interval(rows.values(name, "ours_ns"), rows.values(name, "bare_ns"))
    extra = factor = ""
    if operation == "first_pin":
        extra = verdict(ours - bare, FIRST_PIN_EXTRA_NS)
        # For a call of a millisecond a difference of a microsecond is within its scatter.
        if extra == "NO" and ours <= 1.1 * bare and difference_low(
                rows.values(name, "ours_ns"), rows.values(name, "bare_ns")) <= FIRST_PIN_EXTRA_NS:
            extra = "within noise"
        facts.append({"what": name, "value": ours - bare, "goal": FIRST_PIN_EXTRA, "kept": extra})
        if int(size) >= FIRST_PIN_RATIO_FROM:
            factor = verdict(ratio, FIRST_PIN_RATIO, low)
            facts.append({"what": name, "value": ratio, "goal": FIRST_PIN_FACTOR, "kept": factor})
    return [operation, registrar, size, pages, others, duration(ours), duration(bare), duration(ours - bare),
            f"{ratio:.2f}", extra, factor]


def stalls(rows):
    """(title, text, facts) of hits beside a registering thread."""
    body, facts = [], []
    for name in rows.matching("stall/"):
        if name in rows.skipped:
            body.append([name.removeprefix("stall/"), "skipped"] + [""] * 6)
            continue
        grows = rows.median(name, "share_grows")
        alone, beside = rows.median(name, "longest_alone_us"), rows.median(name, "longest_beside_us")
        kept = longest = ""
        if name.startswith("stall/hydrant/"):
            kept = verdict(grows, STALL_POINTS, quartiles(rows.values(name, "share_grows"))[0])
            longest = verdict(beside, alone, quartiles(rows.values(name, "longest_beside_us"))[0])
            facts += [{"what": name + " share grows (points)", "value": grows, "goal": STALL_POINTS,
                       "kept": kept},
                      {"what": name + " longest (us)", "value": beside, "goal": alone, "kept": longest}]
        body.append([name.removeprefix("stall/"), f"{rows.median(name, 'share_alone'):.2f} %",
                     f"{rows.median(name, 'share_beside'):.2f} %", f"{grows:+.2f}", kept,
                     duration(alone * 1e3), duration(beside * 1e3), longest])
    text = [render(["case", "alone", "beside", "points (goal <= 2)", "kept", "longest alone",
                    "longest beside", "no longer"], body),
            "", "Share of the time that lies in hits over 20 us, alone and beside a thread that registers "
            "64 MiB repeatedly,", "with pauses of pause_us between. 'hydrant-beside-bare' is the "
            "control: the other thread calls the kernel without any cache.",
            "'alone' and 'beside' are medians over the repetitions, 'points' is the median of each "
            "repetition's own difference, which need not be the difference of the two medians."]
    return "Stalls: hits while another thread registers", "\n".join(text), facts


def sweep(rows):
    """(title, text, facts) of the working-set sweep."""
    strategies = ("firehose", "firehose_page", "register", "copy", "pin_everything")
    percents = sorted({int(name.rsplit(":", 1)[1]) for name in rows.matching("sweep/")})
    body, facts = [], []
    for percent in percents:
        names = {strategy: f"sweep/{strategy}/set:{percent}" for strategy in strategies}
        times = {strategy: rows.median(name) for strategy, name in names.items()}
        cells = [duration(times[s]) if times[s] is not None else "skipped" for s in strategies]
        ours = times["firehose"]
        best = min((times[s] for s in ("register", "copy") if times[s]), default=None)
        if ours is not None:
            facts.append({"what": f"sweep at {percent} %", "firehose_ns": ours, "others_ns": times})
        pages = times["firehose_page"]
        body.append([f"{percent} %", *cells, f"{best / ours:.2f}" if ours and best else "",
                     f"{best / pages:.2f}" if pages and best else "",
                     _number(rows.median(names["firehose"], "registrations_per_use")),
                     _number(rows.median(names["firehose_page"], "registrations_per_use")),
                     _number(rows.median(names["firehose"], "copies_per_use"))])
    moved = sum(sum(rows.values(name, "moved_kib")) for name in rows.matching("sweep/"))
    text = [render(["working set / budget", "firehose, regions", "firehose, pages", "register each time",
                    "copy", "pin everything", "best other / regions", "best other / pages",
                    "registrations per use", "the same, pages", "copies per use"], body),
            "", f"Time per use, without moving the data. {moved / 1024:.0f} MiB were moved through pinned "
            "pages and compared.", "'pin everything' breaks the budget past 100 %; 'best other' is the "
            "faster of register each time and copy. A use in page mode may take many buckets."]
    return "Sweep: a working set against a budget", "\n".join(text), facts


def _number(value):
    return "" if value is None else f"{value:.3f}"


def memory_row_name(name):
    return name.removeprefix("memory/")


def memory(rows):
    """(title, text, facts) of the tables' size."""
    body, facts = [], []
    for name in rows.matching("memory/"):
        if name in rows.skipped:
            body.append([memory_row_name(name), "skipped"] + [""] * 5)
            continue
        shared = rows.median(name, "shared_bytes_per_region")
        touch = rows.median(name, "thread_bytes_per_region")
        large = "regions:65536" in name  # small tables are dominated by their fixed part
        kept = (verdict(shared, BYTES_PER_REGION), verdict(touch, BYTES_PER_TOUCH)) if large else ("", "")
        if large:
            facts += [{"what": name + " shared bytes per region", "value": shared, "goal": BYTES_PER_REGION,
                       "kept": kept[0]},
                      {"what": name + " thread bytes per region", "value": touch, "goal": BYTES_PER_TOUCH,
                       "kept": kept[1]}]
        body.append([memory_row_name(name), f"{shared:.1f}", kept[0],
                     f"{rows.median(name, 'thread_bytes') / 1024:.1f}", f"{touch:.2f}", kept[1],
                     f"{rows.median(name, 'resident_per_region'):.1f}"])
    text = [render(["tables", "shared bytes per region", "<= 192", "KiB per thread",
                    "bytes per region per thread", "<= 4", "resident bytes per region, all threads"], body),
            "", "Keys of 8 bytes and regions that are first used in ascending order, unless the row says "
            "otherwise (uring's keys have 12 bytes, stored as 16; random order leaves the chunks of the "
            "region table three quarters full, which is the worst).",
            "Bytes per region per thread: 4 of hold count, for which the goal was set, and the thread's "
            "translation table (8 KiB to FIREHOSE_THREAD_TABLE, 1 MiB), with which it is missed; that table "
            "lets most hits do without the shared one."]
    return "Memory: the cache's own tables", "\n".join(text), facts
