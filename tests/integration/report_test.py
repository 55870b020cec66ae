#!/usr/bin/python3
"""report_test.py BUILD_FOLDER (not used)

The report of ./run from made-up samples: the summary fits the screen, goals are judged correctly, rows of
programs that did not run are omitted.
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from report import coherence, summary, tables  # noqa: E402
from report.samples import Rows  # noqa: E402

REPETITIONS = 9


def rows_of(entries):
    """{row: {counter: value}} as REPETITIONS equal samples each; a list gives the samples one by one."""
    rows = Rows()
    for name, counters in entries.items():
        for i in range(REPETITIONS):
            rows.samples.setdefault(name, []).append(
                {key: value[i % len(value)] if isinstance(value, list) else value
                 for key, value in counters.items()})
    return rows


def first_pin(size, ours, bare):
    return {f"first_pin/uring/bytes:{size}/pages:small/others:0": {"ours_ns": ours, "bare_ns": bare}}


def memlock_row(ratio, usable_ratio, name="4096/access:random/pages:small"):
    return {"memlock/bytes:" + name: {
        "ratio": ratio, "usable_ratio": usable_ratio, "ours_gib_s": 12.056, "pool_gib_s": 12.056,
        "ours_usable_ns": 123456.0, "pool_usable_ns": 123456.0, "copied_percent": 99.9,
        "registrations_per_use": 0.123}}


def beside_row(ours_ns):
    return {"beside/munmap/layer:watched": {
        "ours_ns": ours_ns, "ours_p99_ns": 1e6, "bare_ns": 1e4, "bare_p99_ns": 1e6, "alone_ns": 1e4,
        "alone_p99_ns": 1e5, "registration_us": 900.0}}


def everything():
    entries = {}
    for regions in tables.REGIONS:
        for threads in (1, 2):
            end = f"/regions:{regions}/threads:{threads}"
            for name, ns in (("hydrant/region", 4.5), ("hydrant/page", 123.456), ("ucx", 1234.5),
                             ("floor/locked", 12.0), ("floor/empty", 0.34)):
                entries[name + end] = {"p50_ns": ns}
    for size in summary.SIZES:
        entries |= first_pin(size, 1.5e6, 1.2e6)
    for system in ("hydrant", "hydrant-beside-bare", "ucx"):
        entries[f"stall/{system}/pause_us:1000"] = {
            "share_alone": 12.345, "share_beside": 99.99, "share_grows": 87.65, "longest_alone_us": 1234.5,
            "longest_beside_us": 123456.7}
    for percent in summary.SWEEP_PERCENTS:
        for strategy in ("firehose", "firehose_page", "register", "copy", "pin_everything"):
            entries[f"sweep/{strategy}/set:{percent}"] = {"real_time": 123456.0}
    for access in ("random", "sequential"):
        entries |= memlock_row(1.234, 0.567, f"mixed/access:{access}/pages:small")
    for name in ("release/munmap/memory:cached/layer:checked", "explicit/invalidate/memory:unknown",
                 "arena/free/bytes:2097152"):
        entries[name] = {"ours_ns": 123456.0, "ours_p99_ns": 1234567.0, "later_ns": 1234.5}
        if not name.startswith("explicit"):
            entries[name] |= {"bare_ns": 123456.0, "bare_p99_ns": 123456.0, "extra_ns": 12.5}
    entries |= beside_row(123456.0)
    for extra in ("", "/keys:12", "/keys:12/order:descending"):
        entries[f"memory/region/regions:65536/bytes:1048576{extra}/threads:1"] = {
            "shared_bytes_per_region": 197.4, "thread_bytes": 1e6, "thread_bytes_per_region": 12.1,
            "resident_per_region": 222.2}
    return rows_of(entries)


def verdicts_of(entries):
    """Goal -> verdict for the single first pin in `entries`."""
    facts = tables.misses(rows_of(entries))[2]
    return {fact["goal"]: fact["kept"] for fact in facts}


class Report(unittest.TestCase):
    def test_summary_fits_a_hundred_columns(self):
        rows = everything()
        facts = [fact for table in (tables.hits, tables.misses, tables.stalls, tables.sweep, tables.memory,
                                    coherence.memlock, coherence.invalidation) for fact in table(rows)[2]]
        text = summary.summary(rows, "hold + release: " + "33.00 instructions " * 20, facts)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)
        for heading in ("Hits", "Misses", "Stalls", "Sweep", "8 MiB", "Released memory", "The same",
                        "Memory:", "Goals"):
            self.assertIn("\n" + heading, "\n" + text)

    def test_sections_without_rows_are_left_out(self):
        text = summary.summary(rows_of(first_pin("4096", 600, 300)), "not run", [])
        self.assertIn("Misses", text)
        for heading in ("Hits", "Stalls", "Sweep", "Memory", "8 MiB of memlock"):
            self.assertNotIn(heading + ":", text)

    def test_small_first_pins_are_held_against_the_microsecond_alone(self):
        self.assertEqual(verdicts_of(first_pin("4096", 900, 300)), {tables.FIRST_PIN_EXTRA: "yes"})
        self.assertEqual(verdicts_of(first_pin("4096", 1400, 300)), {tables.FIRST_PIN_EXTRA: "NO"})

    def test_large_first_pins_are_held_against_both_goals(self):
        self.assertEqual(verdicts_of(first_pin("65536", 1200, 900)),
                         {tables.FIRST_PIN_EXTRA: "yes", tables.FIRST_PIN_FACTOR: "NO"})
        self.assertEqual(verdicts_of(first_pin("67108864", 72000, 46000)),
                         {tables.FIRST_PIN_EXTRA: "NO", tables.FIRST_PIN_FACTOR: "NO"})
        self.assertEqual(verdicts_of(first_pin("67108864", 102000, 100000)),
                         {tables.FIRST_PIN_EXTRA: "NO", tables.FIRST_PIN_FACTOR: "yes"})

    def test_a_microsecond_within_the_scatter_is_not_a_miss(self):
        bare = [2.0e6, 2.6e6, 2.5e6]
        self.assertEqual(verdicts_of(first_pin("67108864", [2.53e6, 2.1e6, 2.55e6], bare)),
                         {tables.FIRST_PIN_EXTRA: "within noise", tables.FIRST_PIN_FACTOR: "yes"})

    def test_the_sweep_at_8_mib_shows_rows_that_lose_and_counts_failures(self):
        rows = rows_of(memlock_row(0.5, 1.5))
        kept = [fact["kept"] for fact in coherence.memlock(rows)[2]]
        self.assertEqual(kept, ["NO", "yes", "yes"])
        rows.skipped["memlock/bytes:65536/access:random/pages:small"] = "failed: what arrived is wrong"
        rows.skipped["memlock/bytes:mixed/access:random/pages:small"] = "cannot become user 60000"
        failures = coherence.memlock(rows)[2][-1]
        self.assertEqual((failures["value"], failures["kept"]), (1, "NO"))
        text = coherence.memlock(rows)[1]
        self.assertIn("0.50", text)
        self.assertIn("rows with a failure: 1.", text)

    def test_an_invalidation_that_waits_for_a_registration_is_a_miss(self):
        for ours_ns, kept in ((1e4, "yes"), (8e5, "NO")):
            facts = coherence.invalidation(rows_of(beside_row(ours_ns)))[2]
            self.assertEqual([fact["kept"] for fact in facts], [kept])

    def test_tables_of_rows_that_goals_do_not_cover_have_no_verdict(self):
        name = "release_unpin/uring/bytes:65536/pages:small/others:0"
        self.assertEqual(verdicts_of({name: {"ours_ns": 900, "bare_ns": 300}}), {})


if __name__ == "__main__":
    del sys.argv[-1]
    unittest.main()
