"""The console output of ./run: the most important rows of each table, at most WIDTH columns wide."""
import math
import textwrap

from report import coherence, tables
from report.samples import duration, quartiles, thread_counts

WIDTH = 100
SIZES = ("4096", "65536", "1048576", "67108864")
SWEEP_PERCENTS = (10, 50, 90, 100, 125, 200, 400)


def wrap(text):
    """Every line of `text` broken at blanks."""
    return "\n".join(textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
                     for line in text.splitlines())


def summary(rows, instruction_text, facts):
    """All sections for the console as one text."""
    parts = [_hits(rows), "Instructions of a hit\n" + wrap(instruction_text), _misses(rows, facts),
             _stalls(rows), _sweep(rows), _memlock(rows), _invalidation(rows), _memory(rows),
             _verdicts(facts)]
    return "\n\n".join(part for part in parts if part)


def _section(title, header, body, *notes):
    """A section; "" without rows, when the program did not run and the report has the reason."""
    return "\n".join([title, tables.render(header, body), *map(wrap, notes)]) if body else ""


def _hits(rows):
    body, ratios = [], []
    for regions in tables.REGIONS:
        for threads in thread_counts(rows):
            end = f"/regions:{regions}/threads:{threads}"
            modes = [rows.holds(f"hydrant/{mode}{end}") for mode in ("region", "page")]
            ours = max((quartiles(samples)[1] for samples in modes if samples), default=None)
            if ours is None:
                continue
            ucx, floor = (_middle(rows.holds(name + end)) for name in ("ucx", "floor/locked"))
            goal = tables.HIT_GOALS_NS.get(regions)
            if ucx:
                ratios.append(ucx / ours)
            body.append([f"{regions} x {threads}", f"{ours:.3g}", f"<= {goal:g}" if goal else "-",
                         tables.verdict(ours, goal) if goal else "", _short(ucx), _short(floor),
                         f"{ucx / ours:.1f}" if ucx else ""])
    notes = []
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        notes.append(f"Geometric mean of UCX / ours: {mean:.1f} (goal {tables.PEER_GOAL:g}).")
    return _section("Hits: ns per hold + release per thread, the slower of region and page mode",
                    ["regions x threads", "ours", "goal", "kept", "UCX rcache", "locked inc+dec",
                     "UCX / ours"], body, *notes)


def _misses(rows, facts):
    body = []
    for registrar in ("uring", "mlock"):
        for size in SIZES:
            name = f"first_pin/{registrar}/bytes:{size}/pages:small/others:0"
            if name not in rows.samples:
                continue
            ours, bare = rows.median(name, "ours_ns"), rows.median(name, "bare_ns")
            kept = {fact["goal"]: fact["kept"] for fact in facts if fact["what"] == name}
            body.append([registrar, size, duration(ours), duration(bare), duration(ours - bare),
                         f"{ours / bare:.2f}", kept.get(tables.FIRST_PIN_EXTRA, ""),
                         kept.get(tables.FIRST_PIN_FACTOR, "")])
    return _section("Misses: a first pin of small pages, nothing else registered, beside the bare call",
                    ["registrar", "bytes", "ours", "bare call", "difference", "ratio",
                     tables.FIRST_PIN_EXTRA, tables.FIRST_PIN_FACTOR], body)


def _stalls(rows):
    body = []
    for name in rows.matching("stall/"):
        if name not in rows.samples:
            continue
        body.append([name.removeprefix("stall/").replace("/pause_us:", ", pause "),
                     *(f"{rows.median(name, key):.2f} %" for key in ("share_alone", "share_beside")),
                     f"{rows.median(name, 'share_grows'):+.2f}",
                     *(duration(rows.median(name, key) * 1e3)
                       for key in ("longest_alone_us", "longest_beside_us"))])
    return _section("Stalls: share of the time in hits over 20 us beside a thread that registers 64 MiB",
                    ["case, pause (us)",
                     "alone", "beside", "points", "longest alone", "longest beside"], body,
                    "points (goal <= 2): median of each repetition's own difference.")


def _sweep(rows):
    body = []
    for percent in SWEEP_PERCENTS:
        regions, pages, register, copy = (rows.median(f"sweep/{strategy}/set:{percent}")
                                          for strategy in ("firehose", "firehose_page", "register", "copy"))
        if regions is None:
            continue
        others = [time for time in (register, copy) if time]
        body.append([f"{percent} %", *(duration(time) if time is not None else "skipped"
                                       for time in (regions, pages, register, copy)),
                     f"{min(others) / regions:.2f}" if others else "",
                     f"{min(others) / pages:.2f}" if others and pages else ""])
    return _section("Sweep: time per use, random uses of 4 KiB to 1 MiB, a working set against the budget",
                    ["set / budget", "regions", "64K pages", "register", "copy", "best other / regions",
                     "/ pages"], body)


def _memlock(rows):
    body = [[cells[0], *cells[1:4], *cells[5:8], cells[9]] for cells in coherence.memlock_rows(rows)[0]
            if cells[1] != "skipped"]
    return _section("8 MiB of memlock, an ordinary user, a working set of 64 MiB, beside copying everything",
                    ["bytes, access, pages", "GiB/s", "pool", "ratio", "usable", "pool", "pool / ours",
                     "copied"], body,
                    "GiB/s with the transfer, by the kernel's copying; usable: without, as with a device.")


def _invalidation(rows):
    body = [[cells[0], *cells[1:6]] for cells in coherence.invalidation_rows(rows)[0]
            if cells[1] != "skipped" and not cells[0].startswith("release/madvise")]
    waits = [[cells[0], cells[3], cells[5], cells[7]] for cells in coherence.beside_rows(rows)[0]
             if cells[1] != "skipped"]
    parts = [_section("Released memory: the cost of notifying the cache (64 KiB)",
                      ["what", "median", "p99", "without", "p99", "more"], body),
             _section("The same beside a thread that registers 64 MiB repeatedly (medians)",
                      ["what", "beside bare calls", "beside the cache's", "one registration"], waits)]
    return "\n\n".join(part for part in parts if part)


def _memory(rows):
    body = []
    for name in rows.matching("memory/"):
        if "regions:65536" not in name or "threads:1/" not in name + "/" or name not in rows.samples:
            continue
        shared = rows.median(name, "shared_bytes_per_region")
        body.append([_short_name(name), f"{shared:.1f}",
                     tables.verdict(shared, tables.BYTES_PER_REGION),
                     f"{rows.median(name, 'thread_bytes') / 1024:.0f}"])
    return _section("Memory: the cache's own tables, 65536 regions, one thread",
                    ["tables", "bytes per region", "<= 192", "KiB per thread"], body)


def _short_name(name):
    """Strips text that the heading has."""
    return tables.memory_row_name(name).replace("/regions:65536", "").removesuffix("/threads:1")


def _verdicts(facts):
    judged = [fact for fact in facts if "kept" in fact]
    missed = [fact for fact in judged if fact["kept"] in ("NO", False)]
    noise = sum(fact["kept"] == "within noise" for fact in judged)
    kept = len(judged) - len(missed) - noise
    return f"Goals: {kept} kept, {noise} within noise, {len(missed)} missed; each row is in report.md."


def _middle(samples):
    return quartiles(samples)[1] if samples else None


def _short(ns):
    return "absent" if ns is None else f"{ns:.3g}"
