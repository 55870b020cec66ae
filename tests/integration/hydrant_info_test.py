#!/usr/bin/python3
"""hydrant_info_test.py BUILD_FOLDER

Runs hydrant-info like users and scripts: the JSON document, the tables, values from the environment, wrong
arguments, a closed output.
"""
import ctypes
import json
import os
import pathlib
import platform
import re
import resource
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "launch"))
import over  # noqa: E402  (the path must be set first)

SKIPPED = 77
REGISTRARS = ["uring", "mlock", "ibv"]
PROGRAM = None
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14  # linux/prctl.h, linux/capability.h


def refuse_userfaultfd(errno):
    """For the child of a fork: a seccomp filter, as in containers, under which userfaultfd fails."""
    number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
    load_number, is_equal, answer = 0x20, 0x15, 0x06
    filters = [(load_number, 0, 0, 0), (is_equal, 0, 1, number), (answer, 0, 0, 0x00050000 | errno),
               (answer, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in filters))
    program = struct.pack("HxxxxxxP", len(filters), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(set_no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(
            set_seccomp, filter_mode, program, 0, 0) != 0:
        os._exit(SKIPPED)


def run(*arguments, stdout=subprocess.PIPE, before=None, **variables):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", **variables}
    # Sanitizer options and library paths of the test run apply to the program too.
    environment |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
    return subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          env=environment, timeout=60 * over.PATIENCE, preexec_fn=before)


def report(before=None, **variables):
    done = run("--json", before=before, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def knob(document, name):
    return next(row for row in document["knobs"] if row["name"] == name)


def coverage(document, memory, hooks="without_hooks"):
    rows = {row["memory"]: row for row in document["watching"]["coverage"]}
    return rows[memory][hooks]


class Transports(unittest.TestCase):
    """The transport between ranks. Whether there is a device depends on the machine."""

    def test_chosen_transport_agrees_with_ports_and_reason(self):
        transports = report()["transports"]
        chosen = [row for row in transports["ports"] if row["chosen"]]
        self.assertEqual(transports["near"], "shm")
        self.assertEqual(transports["far"], "ibv" if chosen else None)
        self.assertEqual(bool(chosen), transports["reason"] is None)
        for row in transports["ports"]:
            self.assertEqual(row["usable"], row["reason"] is None)
            # Each usable port that is left out has a reason.
            self.assertEqual(row["left_out"] is not None, row["usable"] and not row["chosen"])
            self.assertTrue(row["distance"] is None or row["distance"] >= 10)

    def test_settings_change_the_transport(self):
        transports = report(HYDRANT_TRANSPORT="shm")["transports"]
        self.assertEqual([transports["near"], transports["far"], transports["reason"]],
                         ["shm", None, "HYDRANT_TRANSPORT=shm"])
        self.assertFalse(any(row["chosen"] for row in transports["ports"]))
        transports = report(HYDRANT_TRANSPORT="ibv")["transports"]
        self.assertEqual(transports["near"], transports["far"])
        transports = report(HYDRANT_IBV_PORTS="nosuch0")["transports"]
        self.assertIsNone(transports["far"])
        self.assertFalse(any(row["chosen"] for row in transports["ports"]))
        self.assertNotEqual(transports["reason"], "")
        if any(row["usable"] for row in transports["ports"]):
            self.assertEqual([row["item"] for row in transports["passed_by"]], ["nosuch0"])

    def test_tables_agree_with_the_document(self):
        text = run(HYDRANT_TRANSPORT="shm").stdout
        self.assertIn("within a node     shm", text)
        self.assertIn("between nodes     none: HYDRANT_TRANSPORT=shm", text)


class Watching(unittest.TestCase):
    """The report says which memory is cached here, and how to cache more. The abilities of machines differ:
    the document must be consistent, also with abilities that the test removes on purpose."""

    def setUp(self):
        self.document = report()
        self.watching = self.document["watching"]

    def test_kinds_of_memory_are_covered_as_userfaultfd_and_hooks_allow(self):
        available = self.watching["userfaultfd"]["available"]
        self.assertEqual(available, self.watching["userfaultfd"]["reason"] is None)
        for memory in ("anonymous", "malloc", "malloc_in_threads"):
            self.assertEqual(coverage(self.document, memory), "checked" if available else "none")
        for hooks in ("without_hooks", "with_hooks"):
            self.assertEqual(coverage(self.document, "arena", "without_hooks"), "arena")
            self.assertIn(coverage(self.document, "files", hooks), ("none", None))
        if available and self.watching["hooks"]["library"] and not self.watching["hooks"]["missing"]:
            self.assertEqual(coverage(self.document, "anonymous", "with_hooks"), "watched")
            # Heaps of other threads are recognised if libc has room for that (glibc 2.35).
            self.assertIn(coverage(self.document, "malloc_in_threads", "with_hooks"), ("watched", "checked"))

    def test_preloaded_hooks_are_recognised(self):
        library = self.watching["hooks"]["library"]
        if library is None:
            self.skipTest("the hooks library is not built")
        self.assertFalse(self.watching["hooks"]["present"])
        document = report(LD_PRELOAD=library)
        self.assertTrue(document["watching"]["hooks"]["present"])
        self.assertEqual(document["watching"]["coverage"], self.watching["coverage"])
        self.assertNotIn("LD_PRELOAD", json.dumps(document["watching"]["advice"]))
        if self.watching["userfaultfd"]["available"]:
            self.assertIn("LD_PRELOAD=" + library, json.dumps(self.watching["advice"]))

    def test_seccomp_filter_is_named_and_arenas_stay_covered(self):
        if platform.machine() not in ("x86_64", "aarch64"):
            self.skipTest("the system call's number here is not known to this test")
        for errno, word in ((1, "not permitted"), (38, "has no userfaultfd")):
            done = run("--json", before=lambda: refuse_userfaultfd(errno))
            if done.returncode == SKIPPED:
                self.skipTest("no seccomp filter may be set here")
            document = json.loads(done.stdout)
            userfault = document["watching"]["userfaultfd"]
            self.assertFalse(userfault["available"])
            self.assertTrue(userfault["seccomp_filter"])
            self.assertIn(word, userfault["reason"])
            self.assertIn("seccomp filter", userfault["reason"])
            for hooks in ("without_hooks", "with_hooks"):
                self.assertIn(coverage(document, "anonymous", hooks), ("none", None))
            self.assertEqual(coverage(document, "arena"), "arena")
            self.assertIn(userfault["reason"], document["watching"]["advice"][0])

    def test_disabled_watching_is_reported_and_respected(self):
        self.assertEqual(self.watching["watch"], "auto")
        document = report(FIREHOSE_WATCH="none")
        watching = document["watching"]
        self.assertEqual(watching["watch"], "none")
        for hooks in ("without_hooks", "with_hooks"):
            self.assertIn(coverage(document, "anonymous", hooks), ("none", None))
        self.assertEqual(coverage(document, "arena"), "arena")
        self.assertIn("FIREHOSE_WATCH=none is in force", watching["advice"][0])
        self.assertEqual(watching["userfaultfd"], self.watching["userfaultfd"])

    def test_a_small_memlock_limit_is_advised_against_unless_lifted(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
        document = report(before=lower)
        advised = "1024 KiB can be locked" in json.dumps(document["watching"]["advice"])
        self.assertEqual(advised, not document["limits"]["memlock_lifted"])

    def test_budget_under_a_small_memlock_limit_names_it(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            # Without this capability in its bounding set, root's program is limited too.
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
        document = report(before=lower)
        self.assertFalse(document["limits"]["memlock_lifted"])
        self.assertIn("memlock limit of 64 KiB (ulimit -l)", document["default_budget"]["text"])

    def test_low_limits_are_advised_against_where_memory_is_not_cached(self):
        if not self.watching["userfaultfd"]["available"]:
            self.skipTest("nothing is cached here with any limit")
        cached = {}
        for value in (4, 6, 7, 10, 20):
            document = report(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (value, value)))
            advice = json.dumps(document["watching"]["advice"])
            cached[value] = coverage(document, "anonymous") == "checked"
            self.assertEqual(cached[value], document["watching"]["userfaultfd"]["available"], value)
            self.assertEqual(f"At most {value} descriptors" in advice, not cached[value], advice)
            if self.watching["hooks"]["library"]:
                self.assertNotIn("was not found: install it", advice)
            if value == 4:
                self.assertIn("no process could be started to try it",
                              document["watching"]["hooks"]["untried"] or "")
        self.assertEqual((cached[6], cached[20]), (False, True))

    def test_missing_proc_is_named_as_a_sentence(self):
        script = 'mount -t tmpfs none /proc && exec "$@"'
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", PROGRAM, "--json"],
                              capture_output=True, text=True, check=False)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"/proc cannot be hidden here: {done.stderr.strip()}")
        watching = json.loads(done.stdout)["watching"]
        self.assertRegex(watching["userfaultfd"]["reason"],
                         r"^Memory cannot be watched: /proc/self/maps is absent.*: mount /proc\.$")
        self.assertIn(watching["userfaultfd"]["reason"] + " Until then", watching["advice"][0])
        self.assertIn("mount /proc", watching["hooks"]["untried"])

    def test_tables_describe_the_coverage(self):
        for line in run().stdout.splitlines():
            self.assertNotRegex(line, r"kernel(cached|not)")
        text = " ".join(run().stdout.split())
        for words in ("libhydrant_alloc cached, hits free of checks", "files, shared not cached",
                      "userfaultfd " + ("works" if self.watching["userfaultfd"]["available"] else "")):
            self.assertIn(words, text)
        for advice in self.watching["advice"]:
            self.assertIn(" ".join(advice.split()), text)


class Segments(unittest.TestCase):
    """Maximum size of segments, and how to raise it."""

    def test_largest_segment_is_a_share_of_available_memory(self):
        most = report()["segments"]["most"]
        self.assertGreater(most["available_bytes"], 0)
        self.assertLessEqual(most["bytes"], most["available_bytes"])
        self.assertIn("GASNET_MAX_SEGSIZE=SIZE allows more", most["text"])
        self.assertTrue(most["limited_by"])

    def test_environment_may_exceed_available_memory(self):
        most = report(GASNET_MAX_SEGSIZE="1T")["segments"]["most"]
        self.assertEqual(most["bytes"], 1 << 40)
        bad = report(GASNET_MAX_SEGSIZE="nan")["segments"]["most"]
        self.assertIsNone(bad["bytes"])
        self.assertIn("GASNET_MAX_SEGSIZE is 'nan'", bad["text"])

    def test_limits_of_the_process_are_counted_and_named(self):
        for kind, limit, option, field in ((resource.RLIMIT_FSIZE, 100 << 20, "ulimit -f", "file_size_bytes"),
                                           (resource.RLIMIT_AS, 3 << 30, "ulimit -v", "address_space_bytes")):
            for asked in ("", "1T"):
                with self.subTest(option=option, asked=asked):
                    document = report(before=lambda: resource.setrlimit(kind, (limit, limit)),
                                      GASNET_MAX_SEGSIZE=asked)
                    self.assertEqual(document["limits"][field], limit)
                    most = document["segments"]["most"]
                    self.assertLessEqual(most["bytes"], limit)
                    self.assertGreater(most["bytes"], limit // 2)
                    self.assertIn(option, most["text"])

    def test_huge_pages_agree_with_the_kernel(self):
        pages = report()["segments"]["huge_pages"]
        try:
            words = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
            mode = words[words.index("[") + 1:words.index("]")]
        except (OSError, ValueError):
            mode = "unknown"
        self.assertEqual(pages["shmem_enabled"], mode)
        self.assertEqual(pages["possible"], mode in ("always", "within_size", "advise", "force"))

    def test_each_of_gasnets_names_in_the_pages_is_shown(self):
        document = report(GASNET_BACKTRACE="1")
        rows = {row["name"]: row for row in document["segments"]["gasnet_variables"]}
        backtrace = rows["GASNET_BACKTRACE"]
        self.assertEqual((backtrace["value"], backtrace["origin"]), ("1", "environment"))
        self.assertEqual(rows["GASNET_BACKTRACE_TYPE"]["value"], "EXECINFO,GDB")  # as a job shows it
        shown = set(rows) | {row["name"] for row in document["knobs"]}
        docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
        written = set()
        for page in ("env_vars.md", "tools.md"):
            text, _, rest = (docs / page).read_text().partition("\n## GASNet's variables without effect\n")
            for line in (text + rest[rest.find("\n## "):]).splitlines():
                written.update(re.findall(r"^\| `?(GASNET_[A-Z_]+)`? \|", line))
        written -= {"GASNET_PARSYNC", "GASNET_DEBUG"}  # macros
        written.remove("GASNET_TEST_POLITE_SYNC")  # of GASNet's programs
        self.assertEqual(written - shown, set())
        text = run().stdout
        for name in rows:
            self.assertIn(name, text)


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
        document = report(GASNET_FIREHOSE_M="64", FIREHOSE_WAIT_WARN="250ms", HYDRANT_IBV_PORTS="nosuch0:1")
        self.assertEqual(knob(document, "GASNET_FIREHOSE_M")["number"], 64 << 20)
        self.assertEqual(knob(document, "GASNET_FIREHOSE_M")["value"], "64M")
        self.assertEqual(knob(document, "FIREHOSE_WAIT_WARN")["value"], "250ms")
        self.assertEqual(knob(document, "FIREHOSE_WAIT_WARN")["origin"], "environment")
        self.assertEqual(knob(document, "HYDRANT_IBV_PORTS")["value"], "nosuch0:1")
        self.assertEqual(knob(document, "FIREHOSE_MERGE")["origin"], "default")

    def test_bad_values_and_unknown_names_are_reported_beside_the_document(self):
        done = run("--json", FIREHOSE_MODE="pages", FIREHOSE_BUGDET="1G")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(knob(json.loads(done.stdout), "FIREHOSE_MODE")["value"], "region")
        self.assertIn('FIREHOSE_MODE="pages" is not accepted', done.stderr)
        self.assertIn("did you mean FIREHOSE_BUDGET?", done.stderr)

    def test_bad_values_and_unknown_names_are_in_the_document_and_the_tables(self):
        bad = {"FIREHOSE_MODE": "pages", "FIREHOSE_BUGDET": "1G", "HYDRANT_XYZZY_PLUGH": "1",
               "GASNET_USE_SRQ": "1"}
        document = report(**bad)
        self.assertEqual(knob(document, "FIREHOSE_MODE")["rejected"], "pages")
        self.assertEqual(knob(document, "FIREHOSE_MODE")["origin"], "default")
        self.assertIsNone(knob(document, "FIREHOSE_MERGE")["rejected"])
        names = {row["name"]: row["did_you_mean"] for row in document["unknown_variables"]}
        self.assertEqual(names, {"FIREHOSE_BUGDET": "FIREHOSE_BUDGET", "HYDRANT_XYZZY_PLUGH": None,
                                 "GASNET_USE_SRQ": None})
        text = " ".join(run(**bad).stdout.split())
        self.assertIn('region default, because "pages" is not accepted: it takes one of region|page', text)
        self.assertIn("FIREHOSE_BUGDET did you mean FIREHOSE_BUDGET?", text)
        self.assertIn("GASNET_USE_SRQ no effect: it is of GASNet's ibv-conduit", text)
        self.assertEqual(report()["unknown_variables"], [])

    def test_settings_without_effect_say_why(self):
        row = knob(report(FIREHOSE_BUCKET="64K"), "FIREHOSE_BUCKET")
        self.assertIn("region mode", row["note"])
        document = report(FIREHOSE_BUCKET="64K", FIREHOSE_MODE="page")
        self.assertIsNone(knob(document, "FIREHOSE_BUCKET")["note"])
        chosen = [row for row in document["registrars"] if row["chosen"]]
        keys = bool(chosen) and chosen[0]["traits"]["key_bytes"] != 0
        self.assertEqual(knob(document, "FIREHOSE_MODE")["note"] is not None, keys)

    def test_texts_that_a_job_does_not_accept_have_a_note(self):
        bad = {"GASNET_BACKTRACE": "foo", "GASNET_FREEZE": "x", "GASNET_NO_CATCH_SIGNAL": "SEGV,SIGFOO",
               "GASNET_VERBOSEENV": "maybe", "GASNET_FREEZE_SIGNAL": "SIGFOO", "HYDRANT_STATS": "foo",
               "HYDRANT_INJECT": "foo", "HYDRANT_TIME_SLICE": "1ns"}
        good = {"GASNET_BACKTRACE": "on", "GASNET_FREEZE": "False", "GASNET_NO_CATCH_SIGNAL": "SEGV,11",
                "GASNET_VERBOSEENV": "n", "GASNET_FREEZE_SIGNAL": "USR1", "HYDRANT_STATS": "json:/tmp/%r",
                "HYDRANT_INJECT": "delay=5us", "HYDRANT_TIME_SLICE": "1ms"}
        for values in (bad, good, {"GASNET_NO_CATCH_SIGNAL": "*"}):
            document = report(**values)
            rows = document["knobs"] + document["segments"]["gasnet_variables"]
            notes = {row["name"]: row["note"] for row in rows}
            for name in values:
                self.assertEqual(notes[name] is not None, values is bad, f"{name}: {notes[name]}")
        text = " ".join(run(**bad).stdout.split())
        self.assertIn("foo environment: invalid value, and the default is used: set y or n", text)
        self.assertIn('environment: "SIGFOO" is no signal and ignored', text)
        self.assertIn("1ns environment: in force is the kernel's minimum, 100us", text)

    def test_tables_say_the_same_as_the_document(self):
        document = report()
        text = run().stdout
        self.assertIn(f"Hydrant {document['version']}", text)
        for row in document["knobs"]:
            self.assertIn(row["name"], text)
        for row in document["registrars"]:
            self.assertIn(f"  {row['name']} ", text)
        self.assertNotIn("at once; 0 derives it from", text)
        self.assertIn("at once; 0 derives it from", run("--verbose").stdout)
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
            self.assertTrue(done.stderr.startswith("hydrant-info: "), done.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(run("--json", stdout=full).returncode, 1)


def main():
    global PROGRAM
    PROGRAM = pathlib.Path(sys.argv.pop()) / "bin" / "hydrant-info"
    if not PROGRAM.exists():
        print(f"skipped: {PROGRAM} is not built (HYDRANT_BUILD_TOOLS is off)")
        return SKIPPED
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
