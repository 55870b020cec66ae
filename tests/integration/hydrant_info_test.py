#!/usr/bin/python3
"""hydrant_info_test.py BUILD_FOLDER

Runs hydrant-info as people and scripts do: the JSON document, the tables, values from the
environment, wrong arguments, a closed output.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SKIPPED = 77
REGISTRARS = ["uring", "mlock", "ibv"]
PROGRAM = None


def run(*arguments, stdout=subprocess.PIPE, **variables):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", **variables}
    # Sanitizer options and library paths of the test run count for the program too.
    environment |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
    return subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          env=environment, timeout=60)


def report(**variables):
    done = run("--json", **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def knob(document, name):
    return next(row for row in document["knobs"] if row["name"] == name)


class HydrantInfo(unittest.TestCase):
    def test_json_names_every_registrar_and_why_it_is_not_usable(self):
        rows = report()["registrars"]
        self.assertEqual([row["name"] for row in rows], REGISTRARS)
        for row in rows:
            self.assertEqual(row["usable"], row["traits"] is not None)
            self.assertEqual(row["usable"], row["reason"] is None)
            self.assertTrue(row["usable"] or len(row["reason"]) > 10, row)
        self.assertLessEqual(sum(row["chosen"] for row in rows), 1)

    def test_json_limits_agree_with_the_system(self):
        limits = report()["limits"]
        self.assertEqual(limits["page_bytes"], os.sysconf("SC_PAGESIZE"))
        self.assertEqual(limits["cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual(limits["kernel"], os.uname().release)
        self.assertGreater(limits["memory_total_bytes"], 0)

    def test_budget_is_finite_and_explained(self):
        budget = report()["default_budget"]
        self.assertGreater(budget["bytes"], 0)
        self.assertTrue(budget["text"])

    def test_budget_of_the_environment_wins(self):
        budget = report(FIREHOSE_BUDGET="64M")["default_budget"]
        self.assertEqual(budget["bytes"], 64 << 20)
        self.assertEqual(budget["decided_by"], "FIREHOSE_BUDGET")

    def test_registrar_of_the_environment_is_chosen_if_usable(self):
        rows = {row["name"]: row for row in report(FIREHOSE_REGISTRAR="mlock")["registrars"]}
        self.assertEqual(rows["mlock"]["chosen"], rows["mlock"]["usable"])
        self.assertFalse(rows["uring"]["chosen"])

    def test_knobs_have_value_and_origin(self):
        document = report(GASNET_FIREHOSE_M="64", FIREHOSE_WAIT_WARN="250ms")
        self.assertEqual(knob(document, "GASNET_FIREHOSE_M")["number"], 64 << 20)
        self.assertEqual(knob(document, "GASNET_FIREHOSE_M")["value"], "64M")
        self.assertEqual(knob(document, "FIREHOSE_WAIT_WARN")["value"], "250ms")
        self.assertEqual(knob(document, "FIREHOSE_WAIT_WARN")["origin"], "environment")
        self.assertEqual(knob(document, "FIREHOSE_MERGE")["origin"], "default")

    def test_bad_values_and_unknown_names_are_reported_beside_the_document(self):
        done = run("--json", FIREHOSE_MODE="pages", FIREHOSE_BUGDET="1G")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(knob(json.loads(done.stdout), "FIREHOSE_MODE")["value"], "region")
        self.assertIn('FIREHOSE_MODE="pages" is not accepted', done.stderr)
        self.assertIn("did you mean FIREHOSE_BUDGET?", done.stderr)

    def test_bad_values_and_unknown_names_are_in_the_document_and_the_tables(self):
        bad = {"FIREHOSE_MODE": "pages", "FIREHOSE_BUGDET": "1G", "HYDRANT_XYZZY_PLUGH": "1"}
        document = report(**bad)
        self.assertEqual(knob(document, "FIREHOSE_MODE")["rejected"], "pages")
        self.assertEqual(knob(document, "FIREHOSE_MODE")["origin"], "default")
        self.assertIsNone(knob(document, "FIREHOSE_MERGE")["rejected"])
        names = {row["name"]: row["did_you_mean"] for row in document["unknown_variables"]}
        self.assertEqual(names, {"FIREHOSE_BUGDET": "FIREHOSE_BUDGET", "HYDRANT_XYZZY_PLUGH": None})
        text = " ".join(run(**bad).stdout.split())
        self.assertIn('region default, because "pages" is not accepted: it takes one of region|page', text)
        self.assertIn("FIREHOSE_BUGDET did you mean FIREHOSE_BUDGET?", text)
        self.assertEqual(report()["unknown_variables"], [])

    def test_settings_without_effect_say_why(self):
        row = knob(report(FIREHOSE_BUCKET="64K"), "FIREHOSE_BUCKET")
        self.assertIn("region mode", row["note"])
        document = report(FIREHOSE_BUCKET="64K", FIREHOSE_MODE="page")
        self.assertIsNone(knob(document, "FIREHOSE_BUCKET")["note"])
        chosen = [row for row in document["registrars"] if row["chosen"]]
        keys = bool(chosen) and chosen[0]["traits"]["key_bytes"] != 0
        self.assertEqual(knob(document, "FIREHOSE_MODE")["note"] is not None, keys)

    def test_tables_say_the_same_as_the_document(self):
        document = report()
        text = run().stdout
        self.assertIn(f"Hydrant {document['version']}", text)
        for row in document["knobs"]:
            self.assertIn(row["name"], text)
        for row in document["registrars"]:
            self.assertIn(f"  {row['name']} ", text)
        self.assertNotIn("at once; 0 takes it from", text)
        self.assertIn("at once; 0 takes it from", run("--verbose").stdout)
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)

    def test_help_and_version_succeed(self):
        self.assertIn("--json", run("--help").stdout)
        self.assertEqual(run("--help").returncode, 0)
        self.assertRegex(run("--version").stdout, r"^hydrant-info \d+\.\d+\.\d+$")

    def test_wrong_arguments_are_named_and_exit_2(self):
        for arguments in (["--jsn"], ["extra"], ["--json=7"], ["--json", "extra"]):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stdout, "", arguments)
            self.assertTrue(done.stderr, arguments)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(run("--json", stdout=full).returncode, 1)


def main():
    global PROGRAM
    PROGRAM = pathlib.Path(sys.argv.pop(1)) / "bin" / "hydrant-info"
    if not PROGRAM.exists():
        print(f"skipped: {PROGRAM} is not built (HYDRANT_BUILD_TOOLS is off)")
        return SKIPPED
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
