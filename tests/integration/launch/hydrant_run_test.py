#!/usr/bin/python3
"""hydrant_run_test.py BUILD_FOLDER

The program hydrant-run itself: options, limits, programs that cannot be run, programs without Hydrant.
"""
import os
import resource
import subprocess
import sys
import tempfile
import unittest

import over
from jobs import SKIPPED, Build

BUILD = Build(sys.argv.pop())
LIMIT = 120 * over.PATIENCE


def run(*arguments, before=None, **variables):
    done = subprocess.run([BUILD.hydrant_run, *arguments], capture_output=True, text=True,
                          timeout=LIMIT,
                          check=False, preexec_fn=before, env={**os.environ, **variables})
    return done.returncode, done.stdout, done.stderr


class HydrantRun(unittest.TestCase):
    def refused(self, code, text, *arguments, **how):
        got, output, errors = run(*arguments, **how)
        self.assertEqual((got, output), (code, ""), errors)
        self.assertIn(text, errors)
        self.assertTrue(errors.startswith("hydrant-run: "), errors)

    def test_help_lists_all_options(self):
        code, output, errors = run("--help")
        self.assertEqual((code, errors), (0, ""))
        for word in ("--ranks", "--env", "--bind", "--timeout", "--verbose", "program", "exit code",
                     "GASNET_EXITTIMEOUT", "HYDRANT_JOB_RANK", "Standard input"):
            self.assertIn(word, output)
        # CLI11 writes a default as "=none" up to version 2.4.
        for line in (r"--bind none\|core(=none| \[none\]) ", r"--timeout SECONDS(=0| \[0\]) "):
            self.assertRegex(output, line)
        self.assertIn("that of the first event other than an exit with 0", output)
        for code in (1, 2, 124, 126, 127):
            self.assertRegex(output, rf"Other exit codes:[^)]*\b{code}\b")

    def test_wrong_options(self):
        self.refused(2, "1 to 4096", "-n", "0", "true")
        self.refused(2, "1 to 4096", "-n", "4097", "true")
        for number in ("-1", "two", "2.5", "99999999999", "0x2"):
            self.refused(2, f'"{number}": expected a whole number from 1 to 4096\n', f"--ranks={number}",
                         "true")
        self.refused(2, "ranks", "true")
        self.refused(2, "program", "-n", "2")
        self.refused(2, "not VAR=VALUE", "-n", "2", "-E", "A", "true")
        self.refused(2, "socket", "-n", "2", "--bind", "socket", "true")
        for number in ("-1", "x", "1e10", "nan", "1s"):
            self.refused(2, f'"{number}": expected seconds, from 0 to 1000000000\n', "-n", "2",
                         f"--timeout={number}", "true")

    def test_version_needs_no_other_option(self):
        code, output, errors = run("--version")
        self.assertEqual((code, errors), (0, ""))
        self.assertRegex(output, r"^hydrant-run \d+\.\d+\.\d+\n$")

    def test_an_unknown_option_is_named_before_a_missing_one(self):
        for rest in ((), ("-n", "2"), ("true",), ("-n", "2", "true")):
            self.refused(2, "--bogus", "--bogus", *rest)
        self.refused(2, "program is required", "-n", "2", "--")

    def test_number_as_other_launchers_take_it(self):
        for how in (("-np", "2"), ("-np2",), ("--verbose", "-np", "2"), ("-E", "A=b", "-np", "2", "--")):
            code, output, errors = run(*how, "echo", "-np", "3")
            self.assertEqual((code, output), (0, "-np 3\n" * 2), errors)
        self.refused(2, '"x": expected a whole number from 1 to 4096\n', "-np", "x", "true")

    def test_programs_that_cannot_be_run(self):
        self.refused(127, "cannot run no-such-program: No such file", "-n", "3", "no-such-program")
        self.refused(127, "cannot run /no/such: No such file", "-n", "3", "/no/such")
        self.refused(127, 'cannot run "": No such file', "-n", "3", "")
        self.refused(126, "cannot run /etc/passwd: Permission denied", "-n", "3", "/etc/passwd")
        self.refused(126, "cannot run /tmp: Is a directory", "-n", "3", "/tmp")

    def test_a_program_that_the_kernel_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "w", encoding="ascii") as file:
                file.write("#!/no/such/interpreter\n")
            os.chmod(path, 0o755)
            code, _, errors = run("-n", "3", path)
            self.assertEqual(code, 127)
            self.assertRegex(errors,
                             r"^hydrant-run: cannot start rank \d: No such file or directory\n$")

    def test_too_few_descriptors(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        self.refused(1, "a job of 64 processes needs 192 descriptors here, and the hard limit is 100",
                     "-n", "64", "true", before=limit)

    def test_too_few_descriptors_for_any_job(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        code, output, errors = run("-n", "2", "true", before=limit)
        self.assertEqual((code, output), (1, ""), errors)
        self.assertIn("the hard limit is 40, too low for a job of any size; raise it", errors)
        self.assertNotIn("at most", errors)

    def test_the_limit_of_the_ranks_is_as_it_was(self):
        def limit():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        code, output, _ = run("-n", "64", "sh", "-c", "ulimit -Sn", before=limit)
        self.assertEqual((code, output), (0, "100\n" * 64))

    def test_programs_without_hydrant(self):
        self.assertEqual(run("-n", "4", "true"), (0, "", ""))
        code, output, _ = run("-n", "3", "sh", "-c", "echo $HYDRANT_JOB_RANK/$HYDRANT_JOB_SIZE $A",
                              "--", A="no")
        self.assertEqual((code, sorted(output.splitlines())), (0, ["0/3 no", "1/3 no", "2/3 no"]))
        code, output, _ = run("-n", "2", "-E", "A=b", "-E", "C=d=e", "sh", "-c", "echo $A $C")
        self.assertEqual((code, output), (0, "b d=e\n" * 2))
        code, _, errors = run("-n", "2", "sh", "-c", "exit $((HYDRANT_JOB_RANK * 5))")
        self.assertEqual(code, 5)
        self.assertIn("rank 1", errors)

    def test_options_after_the_program_are_passed_on(self):
        code, output, _ = run("-n", "1", "echo", "-n", "--verbose", "--help")
        self.assertEqual((code, output), (0, "--verbose --help"))

    def test_a_rank_may_be_below_a_script(self):
        code, output, errors = run("-n", "2", "sh", "-c",
                                   f"{BUILD.probe} watch values fence 1:leave=4; exit $?")
        self.assertEqual(code, 4, output + errors)

    def test_a_second_program_of_a_script_is_refused(self):
        code, _, errors = run("-n", "1", "sh", "-c",
                              f"{BUILD.probe} watch; {BUILD.probe} watch; exit $?")
        self.assertEqual(code, 98, errors)
        self.assertIn("another process is rank 0 already", errors)

    def test_an_exit_before_joining_is_named(self):
        code, _, errors = run("-n", "3", BUILD.probe, "before@1=exit", "fence")
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"rank 1 \(pid \d+\) exited with code 0 and never joined the job")

    def test_timeout(self):
        code, _, errors = run("-n", "2", "--timeout", "0.3", "sleep", "60")
        self.assertEqual(code, 124)
        self.assertIn("the job has run for 0.3 s", errors)

    def test_binding(self):
        allowed = len(os.sched_getaffinity(0))
        code, output, _ = run("-n", "4", "--bind", "core", "grep", "-h", "Cpus_allowed_list",
                              "/proc/self/status")
        self.assertEqual(code, 0)
        self.assertEqual(len(set(output.splitlines())), min(4, allowed))

    def test_closed_standard_streams(self):
        def close():
            for number in (0, 1, 2):
                os.close(number)
        code, _, _ = run("-n", "2", BUILD.probe, "watch", "values", "share", "fence", before=close)
        self.assertEqual(code, 0)


if __name__ == "__main__":
    if not BUILD.has_hydrant_run():
        print("no hydrant-run in this build")
        sys.exit(SKIPPED)
    unittest.main()
