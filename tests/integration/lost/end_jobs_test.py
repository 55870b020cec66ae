#!/usr/bin/python3
"""end_jobs_test.py BUILD_FOLDER

Jobs in which a rank ends while the others wait, poll or compute: the status is right, and rank and cause are
reported once. Also backtraces of faults, and unknown variables, which a job reports once.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
from jobs import LIMIT, Build, Job  # the path must be set first

ROOT = sys.argv.pop()
SIZE = 3


class ClientBuild(Build):
    def __init__(self):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/lost/end_client")


def killed_by(number, hint=""):
    return (rf"rank 1 \(pid \d+\) was killed by signal {int(number)} "
            rf"\({signal.strsignal(number)}(, core dumped)?\); the job is ended{hint}")


def exited(code):
    return rf"rank 1 \(pid \d+\) exited with code {code}; the job is ended"


HINT = r" \(GASNET_BACKTRACE=1 shows where it was\)"
# way of the end -> (status, line)
WAYS = {
    "return4": (4, exited(4)),
    "exit5": (5, exited(5)),
    "quick3": (3, exited(3)),
    "gasnet_exit7": (7, r"rank 1 \(pid \d+\) called gasnet_exit\(7\); the job is ended"),
    "segv": (139, killed_by(signal.SIGSEGV, HINT)),
    "abort": (134, killed_by(signal.SIGABRT)),
    "kill": (137, killed_by(signal.SIGKILL)),
}
WAITED = (r"rank 1 exited with code 0 while 2 of the others waited for messages, barriers or operations .*; "
          r"the job is ended")
NOT_FOLLOWED = r"rank 1 exited with code 0, and 2 of the others did not follow .*; they are killed"


class JobCase(unittest.TestCase):
    def run_job(self, launcher, *arguments, size=SIZE, **variables):
        job = Job(ClientBuild(), launcher, size, *arguments, **variables)
        self.addCleanup(job.kill_all)
        code, output, errors = job.wait()
        self.assertEqual(job.wait_until_gone(), [], output + errors)
        return code, output, errors

    def supervised(self):
        return (["hydrant-run"] if Build(ROOT).has_hydrant_run() else []) + ["fork"]


class Ends(JobCase):
    def check(self, way, others, status, line, launchers=None):
        for launcher in launchers or self.supervised():
            with self.subTest(launcher=launcher, way=way, others=others):
                code, _, errors = self.run_job(launcher, way, others, "1", GASNET_EXITTIMEOUT="3")
                self.assertEqual(code, status, errors)
                self.assertRegex(errors, rf"\Ahydrant(-run)?: {line}\n\Z")

    def test_every_end_is_reported_once(self):
        for way, (status, line) in WAYS.items():
            for others in ("wait", "spin"):
                self.check(way, others, status, line)

    # Calls of the others fail because of the end, which adds no line.
    def test_end_while_others_start_is_reported_once(self):
        for way in ("return4", "kill"):
            self.check(way, "attach", *WAYS[way])
            if Build(ROOT).has_hydrant_run():
                for others in ("init", "late"):
                    self.check(way, others, *WAYS[way], launchers=["hydrant-run"])

    def test_exit_with_zero_while_others_wait(self):
        self.check("exit0", "wait", 0, WAITED)

    def test_exit_with_zero_while_others_continue(self):
        for others in ("spin", "sleep"):
            self.check("exit0", others, 0, NOT_FOLLOWED)

    # The launchers print their own messages for some of these, and are often faster.
    def test_ranks_of_other_launchers_report_at_most_once(self):
        for launcher in Build(ROOT).foreign_launchers():
            for way, (_, line) in WAYS.items():
                with self.subTest(launcher=launcher, way=way):
                    code, _, errors = self.run_job(launcher, way, "wait", "1")
                    self.assertNotEqual(code, 0, errors)
                    told = re.findall(r"(?:rank 1 .*; the job is ended|Caught a fatal signal \(rank \d)",
                                      errors)
                    self.assertLessEqual(len(told), 1, errors)
                    if way in ("gasnet_exit7", "return4", "exit5"):
                        line = line.replace(r" \(pid \d+\)", "")
                        self.assertRegex(errors, line)
                    if way == "segv":
                        self.assertRegex(errors, rf"Caught a fatal signal \(rank 1\): SEGV\(11\){HINT}")


class Children(JobCase):
    """A child that a rank forks is not the rank, however it ends."""
    WAYS = {
        **{way: f"the child died of signal {int(number)}" for way, number in (
            ("segv", signal.SIGSEGV), ("overrun", signal.SIGSEGV), ("abort", signal.SIGABRT),
            ("quit", signal.SIGQUIT), ("term", signal.SIGTERM))},
        "gasnet_exit7": "the child exited with code 7",
    }

    def test_childs_end_adds_no_output_and_does_not_end_the_job(self):
        for launcher in self.supervised():
            for way, end in self.WAYS.items():
                with self.subTest(launcher=launcher, way=way):
                    code, output, errors = self.run_job(launcher, way, "child", "1")
                    self.assertEqual((code, errors), (0, ""))
                    self.assertEqual([line for line in output.splitlines() if "is up" not in line],
                                     ["before the fork; " + end])


class Backtraces(JobCase):
    def backtrace(self, **variables):
        code, _, errors = self.run_job("fork", "segv", "wait", "1", GASNET_BACKTRACE="1", **variables)
        self.assertEqual(code, 139, errors)
        self.assertIn("Caught a fatal signal (rank 1): SEGV(11)\n", errors)
        self.assertNotIn("GASNET_BACKTRACE=1 shows", errors)
        return errors

    @unittest.skipUnless(any(map(shutil.which, ("addr2line", "eu-addr2line", "llvm-addr2line"))),
                         "no addr2line here")
    def test_functions_and_lines_are_shown(self):
        errors = self.backtrace()
        for name in ("touch_what_is_not_there", "main"):
            self.assertRegex(errors, rf"\[1\] #\d+ +0x[0-9a-f]+ in {name} at \S*end_client\.c:\d+ \(")

    def test_without_addr2line(self):
        errors = self.backtrace(PATH="/nonexistent")
        self.assertRegex(errors, r"\[1\] #\d+ +0x[0-9a-f]+ .*\(\S*end_client\+0x[0-9a-f]+\)")

    @unittest.skipUnless(shutil.which("gdb"), "no gdb here")
    def test_gdb_shows_all_threads(self):
        errors = self.backtrace(GASNET_BACKTRACE_TYPE="GDB")
        if "ptrace: Operation not permitted" in errors:
            self.skipTest("this machine forbids to attach a debugger")
        self.assertRegex(errors, r"(?s)Thread 2 .*Thread 1 .*touch_what_is_not_there .*end_client\.c:\d+")

    def test_without_gdb_the_next_mechanism_is_used(self):
        errors = self.backtrace(GASNET_BACKTRACE_TYPE="GDB,EXECINFO", PATH="/nonexistent")
        self.assertRegex(errors, r"\[1\] #0 +0x[0-9a-f]+")


class Settings(JobCase):
    def test_unknown_variables_are_reported_once(self):
        for launcher in self.supervised() + Build(ROOT).foreign_launchers():
            with self.subTest(launcher=launcher):
                code, _, errors = self.run_job(launcher, "storm", "-", "0", GASNET_BACKTRACE="1",
                                               GASNET_BACKTRACE_TYPE="NONSENSE")
                self.assertEqual(code, 0, errors)
                self.assertEqual(errors.count("unknown backtrace mechanism 'NONSENSE'"), 1, errors)
                code, _, errors = self.run_job(launcher, "storm", "-", "0", HYDRANT_STATZ="x")
                self.assertEqual(code, 0, errors)
                self.assertEqual(errors.count("HYDRANT_STATZ is unknown and ignored; did you mean "
                                              "HYDRANT_STATS?"), 1, errors)


    def test_invalid_values_are_reported_once(self):
        variables = {"HYDRANT_TIME_SLICE": "abc", "HYDRANT_POLL_MAX": "0", "GASNET_EXITTIMEOUT": "soon",
                     "HYDRANT_STATS": "xml:foo", "GASNET_NO_CATCH_SIGNAL": "SIGFOO,SEGV",
                     "GASNET_BACKTRACE": "maybe", "GASNET_BACKTRACE_TYPE": "FOO", "GASNET_FREEZE": "maybe",
                     "GASNET_FREEZE_SIGNAL": "FOO", "GASNET_VERBOSEENV": "maybe"}
        for launcher in self.supervised() + Build(ROOT).foreign_launchers():
            with self.subTest(launcher=launcher):
                code, _, errors = self.run_job(launcher, "storm", "-", "0", **variables)
                self.assertEqual(code, 0, errors)
                for name in variables:
                    self.assertEqual(len(re.findall(f" {name}[=:]", errors)), 1, errors)
                self.assertIn('GASNET_NO_CATCH_SIGNAL: "SIGFOO" is no signal', errors)
                self.assertNotIn("ENV parameter", errors)
                code, _, errors = self.run_job(launcher, "storm", "-", "0", GASNET_BACKTRACE="off",
                                               GASNET_BACKTRACE_TYPE="FOO", GASNET_TSC_RATE_TOLERANCE="foo")
                self.assertEqual(code, 0, errors)
                self.assertEqual(len(re.findall(" GASNET_BACKTRACE_TYPE[=:]", errors)), 1, errors)

    def test_another_value_on_one_rank_is_reported_by_that_rank(self):
        if not Build(ROOT).has_hydrant_run():
            self.skipTest("this build has no hydrant-run")
        script = ('[ "$HYDRANT_JOB_RANK" != 1 ] || export HYDRANT_TIME_SLICE=abc HYDRANT_STATS=xml:foo; '
                  'exec "$@"')
        code, _, errors = self.run_job("hydrant-run", "storm", "-", "0", options=["sh", "-c", script, "sh"])
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count('HYDRANT_TIME_SLICE="abc" is not accepted'), 1, errors)
        self.assertEqual(errors.count("HYDRANT_STATS=xml:foo: invalid value"), 1, errors)


class HiddenProc(JobCase):
    client = ClientBuild().probe

    # Runs in a mount namespace with an empty /proc.
    def hidden(self, *command):
        script = 'mount -t tmpfs none /proc && exec "$@"'
        try:
            done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *command], capture_output=True,
                                  text=True, timeout=LIMIT, check=False, env={**os.environ, "LC_ALL": "C"})
        except OSError as error:
            self.skipTest(f"no mount namespace: {error}")
        if "unshare failed" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"/proc cannot be hidden here: {done.stderr.strip()}")
        return done.returncode, done.stdout, done.stderr

    def test_unknown_values_are_not_reported_as_zero(self):
        core = str(pathlib.Path(ROOT) / "tests/integration/am/core_client_seq")
        code, output, errors = self.hidden("env", "GASNET_PSHM_NODES=2", core, "limits")
        self.assertEqual((code, errors), (0, ""), output)
        for size in re.findall(r"local (\d+)", output):
            self.assertGreater(int(size), 1 << 20, output)

    def test_jobs_attach_and_end(self):
        code, output, errors = self.hidden("env", "GASNET_PSHM_NODES=2", self.client, "storm", "-", "16")
        self.assertEqual((code, errors), (0, ""), output)
        code, output, errors = self.hidden("env", "GASNET_PSHM_NODES=3", self.client, "kill", "wait", "1")
        self.assertEqual(code, 137, output + errors)
        self.assertRegex(errors, rf"\Ahydrant: {killed_by(signal.SIGKILL)}\n\Z")

    def test_hydrant_info_reports_unknown_values(self):
        info = pathlib.Path(ROOT) / "bin/hydrant-info"
        if not info.exists():
            self.skipTest("no hydrant-info in this build")
        code, output, errors = self.hidden(str(info))
        self.assertEqual(code, 0, errors)
        self.assertRegex(output, r"control group +not known: /proc/self/cgroup cannot be read")
        self.assertNotRegex(output, r"memory +0|available 0|huge 0")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
