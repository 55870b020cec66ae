#!/usr/bin/python3
"""peers_test.py BUILD_FOLDER (not used)

The races of ./run --peers with made-up suites: what the programs of bench/gasnet print is read, medians and
ratios are right, rows that lose are listed, and a suite or a program that fails is named with its reason.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "gasnet")]
import compare  # noqa: E402
import peers  # noqa: E402

# Stands in for scripts/chroot. Preparations do nothing; programs print one row each, or write JSON.
CHROOT = r"""#!/bin/bash
suite=$1
shift
if [[ " $GONE " = *" $suite "* ]]; then
  echo "E: the archive has no $suite" >&2
  exit 125
fi
case "$1 $2 $3" in
  "sh -euc"*) exit 0 ;;
  "sh -c chrt"*) echo yes && exit ;;
  "sh -c"*) "$@"; exit ;;
esac
for word; do
  case $word in
    --benchmark_out=*) out=${word#*=} ;;
    *-ours) echo "short round trip, 8 bytes: 20.0 ns" && echo "empty_loop 8 bytes 2.0 ns, memcpy 1 ns" ;;
    *-gasnet) echo "short round trip, 8 bytes: 10.0 ns" && echo "empty_loop 8 bytes 1.0 ns" ;;
    */coll_mpi-*) echo "no launcher" >&2 && exit 1 ;;
  esac
done
[ -z "$out" ] && exit
mkdir -p "$(dirname "$out")"
row() { echo "{\"name\": \"$1/regions:1/threads:1\", \"run_type\": \"iteration\", \"p50_ns\": $2}"; }
rows="$(row hydrant/region 4), $(row hydrant/page 6), $(row ucx 60), $(row ucx-limited 3)"
echo "{\"benchmarks\": [$rows]}" >"$out"
"""


class Peers(unittest.TestCase):
    def race(self, races, gone=""):
        """(status, what was printed, the report, its JSON)"""
        with tempfile.TemporaryDirectory() as folder:
            clone = pathlib.Path(folder)
            (clone / "scripts").mkdir()
            (clone / "scripts/chroot").write_text(CHROOT)
            (clone / "scripts/chroot").chmod(0o755)
            report = clone / "build/report"
            report.mkdir(parents=True)
            (report / "peers.md").write_text("an older report")
            (report / "peers.json").write_text("{}")
            done = subprocess.run([sys.executable, "-B", BENCH / "peers.py", races], cwd=clone, text=True,
                                  env={"PATH": "/usr/bin:/bin", "GONE": gone}, capture_output=True,
                                  timeout=60, check=False)
            return (done.returncode, done.stdout + done.stderr, (report / "peers.md").read_text(),
                    json.loads((report / "peers.json").read_text()))

    def test_rows_are_read_as_each_program_prints_them(self):
        for line, row in {
                "short flood, 0 bytes: 21.0 ns": ("short flood", 0, 21.0),
                "put_any      8 bytes    2.20 ns, memcpy  1.00 ns, 2.200 x": ("put_any", 8, 2.2),
                "FADD U64, variable opcode 8 bytes 9.00 ns": ("FADD U64, variable opcode", 8, 9.0),
                "halo         5386.0 ns    0.98 of its floor": ("halo", 0, 5386.0)}.items():
            match = compare.LINE.match(line)
            self.assertEqual((match[1], int(match[2] or 0), float(match[3])), row)
        self.assertIsNone(compare.LINE.match("FADD U64: 1.08 of bare"))

    def test_ratios_are_those_of_medians(self):
        samples = {("put", 8): {"ours": [1.0, 9.0, 2.0], "theirs": [4.0, 4.0, 1.0], "none": []}}
        samples[("put", 8)].pop("none")
        self.assertEqual(compare.ratios(["ours", "theirs", "none"], samples), [(("put", 8), "theirs", 0.5)])
        text = compare.table(["ours", "theirs", "none"], samples, 1)
        self.assertIn("| put, 8 bytes | 2 (1 to 9) | 4 (1 to 4) | none | 0.50 |  |", text)

    def test_rows_that_lose_are_listed_without_those_that_call_no_library(self):
        status, text, report, facts = self.race("puts,hits")
        self.assertEqual(status, 0, text)
        self.assertIn("* puts: short round trip, 8 bytes: 2.00 of GASNet", report)
        self.assertIn("* hit, 1 x 1, forky: 2.00 of UCX, limited", report)
        self.assertEqual(len(facts["losing"]), 3, facts["losing"])
        self.assertIn("| 1 x 1", text)
        self.assertIn("real-time priority", text)
        version = subprocess.check_output(["/usr/bin/g++", "-dumpfullversion"], text=True).strip()
        self.assertRegex(report, rf"forky: .*g\+\+ {version}, glibc ")

    def test_a_suite_that_is_gone_is_named_and_the_others_race(self):
        status, text, report, facts = self.race("hits", gone="trixie")
        self.assertEqual(status, 1, text)
        self.assertIn("Not in this run: trixie: E: the archive has no trixie", report)
        self.assertIn("ours, forky", report)
        self.assertEqual(list(facts["samples"]["hits"]), ["forky"])

    def test_the_last_report_stays_if_no_race_can_be_run(self):
        for races, gone in (("hits,puts", "trixie forky"), ("collectives", "forky")):
            status, text, report, _ = self.race(races, gone)
            self.assertEqual((status, report), (1, "an older report"), text)
            self.assertIn("forky: takes no part: E: the archive has no forky\n", text)
            self.assertIn("No race can be run, so no report was written.", text)

    def test_a_program_that_prints_nothing_is_named(self):
        status, text, report, _ = self.race("collectives")
        self.assertEqual(status, 1, text)
        self.assertIn("collectives: MPICH, trixie printed nothing: ", report)
        self.assertIn("no launcher", text)
        self.assertIn("| none |", report)

    def test_run_refuses_what_names_no_race_and_knows_each_race(self):
        for races, text in {"": "needs races", "hits puts": "needs races", "hits,": "needs races",
                            "--report=/tmp": "needs races", ",".join(peers.RACES): "has one size"}.items():
            done = subprocess.run([BENCH.parent / "run", f"--peers={races}", "--quick"], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(text, done.stderr)

    def test_an_unknown_race_is_refused(self):
        done = subprocess.run([sys.executable, "-B", BENCH / "peers.py", "hits,speed"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'speed' is no race; races are hits, messages", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
