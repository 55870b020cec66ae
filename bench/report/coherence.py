"""Report tables on small memlock limits and on released memory, including rows that miss their goals."""
from report.samples import duration, quartiles, verdict
from report.tables import render

ARENA_FREE_EXTRA_NS = 1000.0
RELEASES = ("release/", "acquire/", "explicit/", "arena/")


def _at_least_one(ratio, high):
    """Whether a ratio reaches 1; within a tenth of it, the upper quartile decides."""
    if ratio >= 1.0:
        return "yes"
    return "within noise" if ratio >= 0.9 and high >= 1.0 else "NO"


def memlock_rows(rows):
    """The rows of the sweep at 8 MiB, one list of cells each, and their facts."""
    body, facts = [], []
    for name in rows.matching("memlock/"):
        label = name.removeprefix("memlock/bytes:").replace("/access:", ", ").replace("/pages:", ", ")
        if name in rows.skipped:
            body.append([label, "skipped"] + [""] * 9)
            continue
        verdicts = []
        for key, what in (("ratio", "transfer included"), ("usable_ratio", "transfer not included")):
            ratio = rows.median(name, key)
            verdicts.append(_at_least_one(ratio, quartiles(rows.values(name, key))[2]))
            facts.append({"what": f"{name}, {what}", "value": ratio, "goal": ">= 1 x copying",
                          "kept": verdicts[-1]})
        body.append([label, *(f"{rows.median(name, key):.2f}" for key in ("ours_gib_s", "pool_gib_s")),
                     f"{rows.median(name, 'ratio'):.2f}", verdicts[0],
                     *(duration(rows.median(name, key)) for key in ("ours_usable_ns", "pool_usable_ns")),
                     f"{rows.median(name, 'usable_ratio'):.2f}", verdicts[1],
                     f"{rows.median(name, 'copied_percent'):.0f} %",
                     f"{rows.median(name, 'registrations_per_use'):.2f}"])
    return body, facts


MEMLOCK_HEADER = ["bytes, access, pages", "ours GiB/s", "pool GiB/s", "ratio", ">= 1", "ours, usable",
                  "pool, usable", "pool / ours", ">= 1", "copied", "registrations per use"]


def memlock(rows):
    """(title, text, facts) of 8 MiB of memlock against a working set of 64 MiB."""
    body, facts = memlock_rows(rows)
    failed = [name for name, reason in rows.skipped.items()
              if name.startswith("memlock/") and reason.startswith("failed")]
    if body:
        facts.append({"what": "memlock/ rows with a failure", "value": len(failed), "goal": 0,
                      "kept": "NO" if failed else "yes"})
    text = [render(MEMLOCK_HEADER, body),
            "", "An ordinary user, 8 MiB of memlock, 64 MiB of memory: the cache, with what is 'not now' "
            "copied through pre-pinned buffers, against copying everything through them.",
            "GiB/s of processor time with the transfer, which the kernel does by copying; 'usable' is the "
            "cost of making memory ready for a device and releasing it, which is all of the processor's "
            "work with a network adapter.",
            f"Every byte was compared on arrival; rows with a failure: {len(failed)}."]
    return "8 MiB of memlock, a working set of 64 MiB", "\n".join(text), facts


def invalidation_rows(rows):
    """The cost of notifications by layer, and the facts that have goals."""
    body, facts = [], []
    for name in sorted(one for prefix in RELEASES for one in rows.matching(prefix)):
        if name in rows.skipped:
            body.append([name, "skipped"] + [""] * 6)
            continue
        bare, extra = rows.median(name, "bare_ns"), rows.median(name, "extra_ns")
        kept = ""
        if name.startswith("arena/"):
            kept = verdict(extra, ARENA_FREE_EXTRA_NS)
            facts.append({"what": name, "value": extra, "goal": "<= 1 us more", "kept": kept})
        body.append([name, duration(rows.median(name, "ours_ns")), duration(rows.median(name, "ours_p99_ns")),
                     *((duration(bare), duration(rows.median(name, "bare_p99_ns")), duration(extra))
                       if bare else ("", "", "")), duration(rows.median(name, "later_ns")), kept])
    return body, facts


def beside_rows(rows):
    """Invalidations while another thread registers 64 MiB repeatedly."""
    body, facts = [], []
    for name in rows.matching("beside/"):
        if name in rows.skipped:
            body.append([name, "skipped"] + [""] * 7)
            continue
        ours, registration_us = rows.median(name, "ours_ns"), rows.median(name, "registration_us")
        kept = verdict(ours, 0.5e3 * registration_us)
        facts.append({"what": name + " median", "value": ours,
                      "goal": "less than half a registration under way", "kept": kept})
        body.append([name.removeprefix("beside/"),
                     *(duration(rows.median(name, key)) for key in
                       ("alone_ns", "alone_p99_ns", "bare_ns", "bare_p99_ns", "ours_ns", "ours_p99_ns")),
                     duration(registration_us * 1e3), kept])
    return body, facts


INVALIDATION_HEADER = ["what", "median", "p99", "without", "p99", "more", "later", "<= 1 us more"]


def invalidation(rows):
    """(title, text, facts) of the cost of releasing memory."""
    body, facts = invalidation_rows(rows)
    beside, more_facts = beside_rows(rows)
    text = [render(INVALIDATION_HEADER, body),
            "", "64 KiB; 'without' is the same call without the layer (never, acquire: no cache in the "
            "process; cached, held: pinned without a cache; explicit: the deregistration alone; arena: not "
            "registered). 'later' is the poll that deregisters.",
            "", render(["beside a thread that registers 64 MiB", "alone", "p99", "beside bare calls", "p99",
                        "beside the cache's", "p99", "one registration", "no wait"], beside),
            "", "'beside bare calls' is the control: that thread uses a ring of its own, and no cache. 'no "
            "wait': the median is less than half a registration, which is what waiting for a lock held "
            "across it would cost on average."]
    return "Released memory: the cost of notifying the cache", "\n".join(text), facts + more_facts
