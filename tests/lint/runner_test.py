#!/usr/bin/python3
"""runner_test.py: the scripts behind ./test find what they are there to find."""
import ast
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from self_test import ROOT, Tree

sys.path.insert(0, str(ROOT / "tests/integration/launch"))
sys.path.insert(0, str(ROOT / "scripts"))
import over  # noqa: E402  (the path must be set first)
from tree_name import tree_name  # noqa: E402


class Progress(Tree):
    """scripts/test_progress.py, which follows a build or a run of tests."""

    def followed(self, *parts):
        """The lines printed for a log that grows by PARTS, each longer than it looks away."""
        log = self.root / "run.log"
        script = ROOT / "scripts/test_progress.py"
        follower = subprocess.Popen([sys.executable, "-B", script, "dev: testing", log],
                                    stdout=subprocess.PIPE, text=True)
        lines = []
        try:
            for part in parts:
                with open(log, "a") as file:
                    file.write(part)
                lines.append(follower.stdout.readline())
        finally:
            follower.terminate()
            rest, _ = follower.communicate(timeout=30 * over.PATIENCE)
        self.assertEqual((rest, follower.returncode), ("", 0))
        return lines

    def test_steps_of_ctest_and_of_ninja(self):
        first, second, last = self.followed(
            " 1/10 Test #7: a .. Passed\n", "[5/10] Building 9/9 b.o\n", "10/10 Test #8: c\nTotal\n")
        self.assertRegex(first, r"^dev: testing: 1 of 10, \d+ s, about \d+ s left$")
        self.assertRegex(second, r"^dev: testing: 5 of 10, \d+ s, about \d+ s left$")
        self.assertRegex(last, r"^dev: testing: 10 of 10, \d+ s$")

    def test_failure_is_shown_at_once_with_its_output_and_how_to_run_it_again(self):
        log = self.root / "run.log"
        log.write_text(
            "      Start 7: a.b\n 1/10 Test #7: a.b ...***Failed    0.01 sec\nboom\n\n      Start 8: c\n")
        script = ROOT / "scripts/test_progress.py"
        follower = subprocess.Popen([sys.executable, "-B", script, "dev", log, "ctest -R"],
                                    stdout=subprocess.PIPE, text=True)
        lines = [follower.stdout.readline().rstrip() for _ in range(3)]
        follower.terminate()
        follower.communicate(timeout=30 * over.PATIENCE)
        self.assertEqual(lines, ["FAILED  a.b (Failed)", "    boom", "  again: ctest -R '^a\\.b$'"])

    def test_running_tests_are_named(self):
        log = self.write(
            "run.log", "  Start 7: a.b\n  Start 8: c\n 1/10 Test #7: a.b ....   Passed    0.01 sec\n")
        outcome = self.run_command(sys.executable, "-B", ROOT / "scripts/test_progress.py", "--running", log)
        self.assertEqual(outcome, (0, "c\n"))

    def test_build_that_takes_too_long_is_ended(self):
        script = f'cd "{ROOT}" && . scripts/dependencies.sh && hydrant_limit=1 && '
        script += f'hydrant_followed text "" "{self.root}/log" sleep 300'
        self.assertEqual(self.run_command("bash", "-c", script)[0], 124)

    def assert_ends_what_it_follows(self, kill, status):
        marks = self.root / "marks"
        marks.mkdir()
        script = (f'cd "{ROOT}" && . scripts/dependencies.sh && hydrant_followed text "" "{self.root}/log" '
                  f"sh -c 'touch {marks}/started; sleep 300 & wait'")
        process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60 * over.PATIENCE
        while not (marks / "started").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        kill(process)
        # The pipe is closed when the last process that has it is gone, and "sleep" has the log instead.
        process.communicate(timeout=60 * over.PATIENCE)
        self.assertEqual(process.returncode, status)
        look = ["pgrep", "-f", f"touch {marks}/started"]
        while left := subprocess.run(look, capture_output=True, text=True).stdout:
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.01)

    def test_what_is_followed_ends_with_the_script(self):
        self.assert_ends_what_it_follows(subprocess.Popen.terminate, 143)

    @unittest.skipUnless(shutil.which("setpriv"), "setpriv is missing")
    def test_what_is_followed_ends_with_a_script_that_is_killed(self):
        self.assert_ends_what_it_follows(subprocess.Popen.kill, -signal.SIGKILL)


class Limited(Tree):
    """scripts/run_limited.py."""

    def limited(self, seconds, *command):
        return self.run_command(sys.executable, "-B", ROOT / "scripts/run_limited.py", seconds, *command)

    def test_status_is_that_of_the_command(self):
        self.assertEqual(self.limited("0", "sh", "-c", "echo text; exit 7"), (7, "text\n"))
        self.assertEqual(self.limited("0", "sh", "-c", "kill -KILL $$")[0], 128 + signal.SIGKILL)
        status, output = self.limited("0", self.root / "missing")
        self.assertEqual((status, output.split(": ")[1]), (1, f"cannot run {self.root}/missing"))

    def test_command_that_takes_too_long_is_ended_with_its_children(self):
        # The pipe of run_command() is closed when the last process that has it is gone.
        self.assertEqual(self.limited("0.2", "sh", "-c", "sleep 300 & sleep 300")[0], 124)

    def test_signal_while_the_command_starts_ends_it(self):
        for _ in range(20):
            self.assertEqual(self.limited("0", "sh", "-c", "kill -TERM $PPID; sleep 300"), (143, ""))

    def test_command_may_be_interrupted_also_where_the_shell_ignores_that(self):
        limited = f'"{sys.executable}" -B "{ROOT}/scripts/run_limited.py" 0'
        script = f'{limited} sh -c "kill -INT \\$\\$; sleep 300" & wait $!'
        self.assertEqual(self.run_command("sh", "-c", script)[0], 128 + signal.SIGINT)


class TreeName(Tree):
    """scripts/tree_name.py."""

    def git(self, *words):
        person = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", self.root, *person, *words], check=True, capture_output=True)

    def name(self, folder="."):
        result = subprocess.run([sys.executable, "-B", ROOT / "scripts/tree_name.py"], cwd=self.root / folder,
                                capture_output=True, text=True, check=True)
        return result.stdout.strip()

    def test_changes_have_a_name_whatever_the_users_settings_of_git(self):
        self.git("init", "-q")
        self.write("a", "1\n2\n3\n")
        self.git("add", ".")
        self.git("commit", "-qm", "a")
        self.assertRegex(self.name(), "^[0-9a-f]{12}$")
        os.utime(self.root / "a", (1, 1))
        self.assertRegex(self.name(), "^[0-9a-f]{12}$")
        self.write("a", "1\n2\n4\n")
        changed = self.name()
        self.assertRegex(changed, "^[0-9a-f]{12}-[0-9a-f]{8}$")
        for setting in ("noprefix", "mnemonicPrefix"):
            self.git("config", f"diff.{setting}", "true")
        self.git("config", "diff.context", "0")
        self.assertEqual(self.name(), changed)
        self.write("a", "1\n2\n5\n")
        self.assertNotEqual(self.name(), changed)

    def test_tree_without_a_repository_of_its_own_is_named_by_its_files(self):
        source = self.write("unpacked/a", "1\n")
        self.write("unpacked/build/dev/tree", "x\n")
        alone = self.name("unpacked")
        self.assertRegex(alone, "^archive-[0-9a-f]{8}$")
        self.write("unpacked/build/dev/tree", "y\n")
        self.git("init", "-q")
        self.git("commit", "-qm", "a", "--allow-empty")
        self.assertEqual(self.name("unpacked"), alone)
        source.write_text("2\n")
        self.assertNotEqual(self.name("unpacked"), alone)


class WithOtherCtest(Tree):
    """Runs scripts that start ctest, with a shell script in its place."""

    def write_ctest(self, body):
        self.write("bin/ctest", "#!/bin/sh\n" + body).chmod(0o755)

    def run_script(self, name, *arguments):
        result = subprocess.run([sys.executable, "-B", ROOT / "scripts" / name, *arguments],
                                env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"},
                                capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


class Tiers(WithOtherCtest):
    """scripts/test_tiers.py."""

    def check(self, lines, gate, full):
        def listed(tests):
            return json.dumps({"tests": [{"name": name, "properties": [{"name": "LABELS", "value": [label]}]}
                                         for name, label in tests]})
        self.write("gate/tests.json", listed(gate))
        self.write("full/tests.json", listed(full))
        self.write_ctest('cat "$2/tests.json"\n')
        only = self.write("full_only.txt", "# a comment\n\n" + lines)
        return self.run_script("test_tiers.py", only, self.root / "gate", self.root / "full")

    GATE = [("lint.a", "lint"), ("unit_b_NOT_BUILT", "unit")]
    FULL = [("lint.a", "lint"), ("unit_b/C.D", "unit"), ("stale.e", "stale"), ("verbs.f", "verbs")]

    def test_all_tests_have_a_tier(self):
        self.assert_clean(self.check("^stale\\.  long\n", self.GATE, self.FULL))

    def test_test_in_no_tier(self):
        self.assert_finds(self.check("^lint  long\n", self.GATE, self.FULL), "stale.e: neither in the gate")

    def test_programs_of_the_gate_that_are_out_of_date(self):
        gate = [("lint.a", "lint"), ("unit_b/C.Old", "unit")]
        self.assert_clean(self.check("^stale\\.  long\n", gate, self.FULL))

    def test_pattern_without_a_test(self):
        self.assert_finds(self.check("^stale\\.  long\n^gone$  old\n", self.GATE, self.FULL), "^gone$")


def names_a_class_with_cases(tree):
    """The classes of a syntax tree that derive from one of its classes with cases."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def has_cases(node):
        return any(isinstance(part, ast.FunctionDef) and part.name.startswith("test_") for part in node.body)
    return [name for name, node in classes.items()
            if any(isinstance(base, ast.Name) and base.id in classes and has_cases(classes[base.id])
                   for base in node.bases)]


class Cases(unittest.TestCase):
    """hydrant_add_script() of tests/CMakeLists.txt, which finds the cases of a script in its lines."""

    def test_no_script_inherits_cases(self):
        scripts = list((ROOT / "tests").rglob("*_test.py"))
        self.assertGreater(len(scripts), 20)
        for script in scripts:
            self.assertEqual(names_a_class_with_cases(ast.parse(script.read_text())), [], script)

    def test_inherited_cases_are_found(self):
        tree = ast.parse("class A:\n  def test_x(self): pass\nclass B(A): pass\nclass C(D): pass\n")
        self.assertEqual(names_a_class_with_cases(tree), ["B"])


class Repeat(WithOtherCtest):
    """scripts/test_repeat.py."""

    def repeat(self, body, tree=tree_name()):
        self.write_ctest("while [ \"$1\" != --output-junit ]; do shift; done\n" + body)
        self.write("tree", tree + "\n")
        return self.run_script("test_repeat.py", "--times", "3", "--busy", "1", self.root,
                               self.root / "store")

    PASSED = '<testcase name="a" status="run"/>'
    FAILED = ('<testcase name="b" status="fail"><failure/>'
              '<system-out>boom</system-out></testcase>')

    def test_flip_is_found_and_named_with_its_rate(self):
        flips = self.FAILED.replace('"fail"', '"run"').replace("<failure/>", "")
        status, output = self.repeat(
            f"once={self.root}/once\n"
            f"if [ -e $once ]; then b='{flips}'; else b='{self.FAILED}'; fi; touch $once\n"
            f"echo \"<testsuite>\"'{self.PASSED}'\"$b</testsuite>\" >\"$2\"\n")
        self.assertEqual(status, 1, output)
        self.assertIn("b: failed 1 of 3 runs", output)
        self.assertIn("    boom", output)

    def test_tests_that_always_pass(self):
        status, output = self.repeat(f"echo '<testsuite>{self.PASSED}</testsuite>' >\"$2\"\n")
        self.assertEqual((status, output.splitlines()[-1]),
                         (0, "1 tests, up to 3 runs each of this commit: 0 failed at least once"))

    def test_run_without_a_report_is_a_failure(self):
        status, output = self.repeat(
            f"if [ -e {self.root}/once ]; then echo boom; exit 8; fi; touch {self.root}/once\n"
            f"echo '<testsuite>{self.PASSED}</testsuite>' >\"$2\"\n")
        self.assertEqual(status, 1, output)
        self.assertIn("run 2 of 3: ctest gave no report\nboom\n", output)

    def test_test_that_cannot_start_has_failed(self):
        status, output = self.repeat(
            "echo '<testsuite><testcase name=\"b\" status=\"notrun\">"
            "<skipped message=\"Unable to find executable\"/></testcase>"
            f"{self.PASSED}</testsuite>' >\"$2\"\n")
        self.assertEqual(status, 1, output)
        self.assertIn("b: failed 3 of 3 runs", output)

    def test_test_that_is_skipped_at_times_is_named(self):
        skipped = ('<testcase name="a" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
                   "<system-out>no luck</system-out></testcase>")
        status, output = self.repeat(
            f"once={self.root}/once\n"
            f"if [ -e $once ]; then a='{skipped}'; else a='{self.PASSED}'; fi; touch $once\n"
            "echo \"<testsuite>$a</testsuite>\" >\"$2\"\n")
        self.assertEqual(status, 1, output)
        self.assertIn("a: skipped 2 of 3 runs", output)

    def test_no_test_at_all(self):
        self.assertEqual(self.repeat("exit 0\n")[0], 2)

    def test_build_of_another_tree(self):
        status, output = self.repeat(f"echo '<testsuite>{self.PASSED}</testsuite>' >\"$2\"\n",
                                     tree="0123456789ab")
        self.assertEqual(status, 2)
        self.assertIn("is a build of 0123456789ab, and this tree is ", output)

    def test_no_test_after_runs_of_others(self):
        self.repeat(f"echo '<testsuite>{self.FAILED}</testsuite>' >\"$2\"\n")
        self.assertEqual(self.repeat("echo '<testsuite/>' >\"$2\"\n")[0], 2)

    def test_results_that_cannot_be_read(self):
        for damaged in ("{", '{"a": 1}', '[]', '{"a": {"passed": "many"}}'):
            self.write(f"store/{tree_name()}.json", damaged)
            status, output = self.repeat(f"echo '<testsuite>{self.PASSED}</testsuite>' >\"$2\"\n")
            self.assertEqual(status, 2, output)
            self.assertIn("holds no results of earlier runs", output)
            self.assertNotIn("Traceback", output)

    def test_failures_of_other_tests_do_not_count(self):
        self.repeat(f"echo '<testsuite>{self.FAILED}</testsuite>' >\"$2\"\n")
        self.assertEqual(self.repeat(f"echo '<testsuite>{self.PASSED}</testsuite>' >\"$2\"\n")[0], 0)


class Summary(WithOtherCtest):
    """scripts/test_summary.py."""

    def test_sizes_that_tests_print_are_added_up(self):
        cases = "".join(f'<testcase name="a" status="run"><system-out>size of the matrix: {cells} cells, '
                        "7 calls right\n</system-out></testcase>" for cells in (2, 3))
        self.write("report/gate.xml", f"<testsuite>{cases}</testsuite>")
        self.write("logs/gate.test.log", "")
        status, output = self.run_script("test_summary.py", self.root / "report", self.root / "logs")
        self.assertEqual((status, output.splitlines()[-2:]),
                         (0, ["the matrix: 5 cells, 14 calls right", "2 passed, 0 failed, 0 skipped"]))

    def test_each_of_several_steps_has_its_counts(self):
        self.write("report/forky.xml", '<testsuite><testcase name="a" status="run"/></testsuite>')
        self.write("report/forky.system", "g++ 16, glibc 2.43\n")
        self.write("report/trixie.broken", "no such suite\n")
        self.write("logs/forky.test.log", "")
        status, output = self.run_script("test_summary.py", self.root / "report", self.root / "logs")
        self.assertEqual((status, output.splitlines()[-3:]),
                         (1, ["trixie: 0 passed, 1 failed, 0 skipped",
                              "forky (g++ 16, glibc 2.43): 1 passed, 0 failed, 0 skipped",
                              "1 passed, 1 failed, 0 skipped"]))


# The first word that is a folder is where mmdebstrap makes the system; MAKES says what becomes of it.
MMDEBSTRAP = r"""#!/bin/sh
for word; do [ ! -d "$word" ] || new=$word; done
case $MAKES in
  nothing) echo "I: hello"; echo "E: no network" >&2; echo more; exit 25 ;;
  slowly) mount -t tmpfs tmpfs "$new"; sleep 1000 & echo >"$CCACHE_DIR/begun"; wait ;;
esac
mkdir "$new/bin" "$new/proc" "$new/sys" "$new/dev" "$new/tmp"
cp /bin/busybox "$new/bin"
for name in sh cat ls sleep touch; do ln -s busybox "$new/bin/$name"; done
"""


def can_isolate():
    unshare = ["unshare", "--mount", "--pid", "--fork", "true"]
    return os.getuid() == 0 and subprocess.run(unshare, capture_output=True, check=False).returncode == 0


@unittest.skipUnless(can_isolate() and shutil.which("busybox"),
                     "needs root, namespaces of mounts and processes, and busybox")
class Chroot(Tree):
    """scripts/chroot with a false mmdebstrap: what it leaves behind, whatever happens."""

    SLEEPS = "touch $CCACHE_DIR/begun; exec sleep 1000"

    def setUp(self):
        super().setUp()
        self.chroots = self.root / "chroots"
        self.environment = {**os.environ, "HYDRANT_CHROOTS": str(self.chroots),
                            "CCACHE_DIR": str(self.root / "ccache"), "MAKES": "all",
                            "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        (self.root / "ccache").mkdir()
        self.program("mmdebstrap", MMDEBSTRAP)
        self.program("apt-get", "#!/bin/sh\necho http://archive.example/debian\n")
        self.program("apt-config", "#!/bin/sh\n")

    def program(self, name, text):
        self.write(f"bin/{name}", text).chmod(0o755)

    def command(self, *words):
        return [ROOT / "scripts/chroot", *words]

    def run_chroot(self, *words, **variables):
        done = subprocess.run(self.command(*words), env={**self.environment, **variables},
                              capture_output=True, text=True, check=False, timeout=60 * over.PATIENCE)
        return done.returncode, done.stdout, done.stderr

    def begin(self, *words, **variables):
        """A run that is under way when this returns: its system is being made, or its command runs."""
        process = subprocess.Popen(self.command(*words), env={**self.environment, **variables},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        begun = self.root / "ccache/begun"
        self.wait_until(begun.exists)
        begun.unlink()
        return process

    def wait_until(self, is_true):
        limit = time.monotonic() + 60 * over.PATIENCE
        while not is_true():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def processes(self):
        """The processes that make a system or run in one; others end with their namespace."""
        found = subprocess.run(["pgrep", "-f", self.root], capture_output=True, text=True, check=False)
        return found.stdout.split()

    def folders(self):
        """The names of all that is left, but for logs and locks."""
        return sorted(path.name for path in self.chroots.iterdir() if path.suffix not in (".log", ".lock"))

    def assert_nothing_is_mounted(self):
        self.assertNotIn(str(self.root), pathlib.Path("/proc/self/mounts").read_text())

    def test_command_runs_in_the_system_and_in_the_clone(self):
        for _ in range(2):
            script = "ls /bin/busybox scripts/chroot; exit 7"
            status, output, errors = self.run_chroot("forky", "sh", "-c", script)
            self.assertEqual((status, output), (7, "/bin/busybox\nscripts/chroot\n"), errors)
            self.assert_nothing_is_mounted()
            self.environment["MAKES"] = "nothing"  # The system is there.
        self.assertEqual(self.folders(), ["forky"])

    def test_wrong_arguments(self):
        for words in ((), ("forky",), ("../x", "true"), ("--delete",), ("--delete", "forky", "true"),
                      ("-x", "true")):
            status, output, errors = self.run_chroot(*words)
            self.assertEqual((status, output), (2, ""), errors)
            self.assertIn("see scripts/chroot --help", errors)
        self.assertFalse(self.chroots.exists())

    def test_system_that_cannot_be_made(self):
        status, output, errors = self.run_chroot("forky", "true", MAKES="nothing")
        self.assertEqual((status, output), (125, ""))
        self.assertIn("mmdebstrap forky: E: no network; check that Debian has this suite", errors)
        self.assertEqual(self.folders(), [])
        root = self.chroots / "forky"
        text = f"scripts/chroot: there is no system {root}; ls {self.chroots} shows which there are\n"
        self.assertEqual(self.run_chroot("--delete", "forky"), (125, "", text))
        self.assertEqual(list(self.chroots.iterdir()), [])
        self.program("apt-get", "#!/bin/sh\n")
        status, output, errors = self.run_chroot("forky", "true")
        self.assertEqual(status, 125)
        self.assertEqual(errors, "scripts/chroot: apt has no package lists of Debian; apt-get update\n")

    def test_run_that_is_ended_leaves_no_process_and_no_mount(self):
        for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            for words in (("forky", "true"), ("trixie", "sh", "-c", self.SLEEPS)):
                with self.subTest(signal=signal_number, words=words):
                    process = self.begin(*words, MAKES="slowly" if "forky" in words else "all")
                    self.assertTrue(self.processes())
                    process.send_signal(signal_number)
                    process.wait()
                    self.wait_until(lambda: not self.processes())
                    self.assert_nothing_is_mounted()
                    if signal_number != signal.SIGKILL:
                        self.assertFalse([name for name in self.folders() if name.endswith("~")])
        # SIGKILL leaves what the next run removes.
        self.assertEqual(len(self.folders()), 2)
        self.assertEqual(self.run_chroot("forky", "true")[0], 0)
        self.assertEqual(self.folders(), ["forky", "trixie"])

    def test_system_in_use_is_neither_made_nor_deleted(self):
        process = self.begin("forky", "sh", "-c", self.SLEEPS)
        status, _, errors = self.run_chroot("--delete", "forky")
        self.assertEqual((status, errors.split(";")[0]),
                         (125, f"scripts/chroot: another script uses, makes or deletes {self.chroots}/forky"))
        self.assertEqual(self.run_chroot("forky", "true")[0], 0)
        process.terminate()
        process.wait()
        process = self.begin("trixie", "true", MAKES="slowly")
        self.assertEqual(self.run_chroot("trixie", "true")[0], 125)

    def test_command_has_an_empty_tmp_its_input_and_its_signals(self):
        script = 'cat; ls /tmp/x /dev/shm/x; touch /tmp/x /dev/shm/x || exit; kill -INT $$; echo "not ended"'
        for _ in range(2):
            done = subprocess.run(self.command("forky", "sh", "-c", script), env=self.environment,
                                  input="input\n", capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (130, "input\n"), done.stderr)

    def test_folder_that_is_no_system(self):
        (self.chroots / "forky").mkdir(parents=True)
        status, _, errors = self.run_chroot("forky", "true")
        root = self.chroots / "forky"
        text = f"scripts/chroot: {root} is no system; scripts/chroot --delete forky\n"
        self.assertEqual((status, errors), (125, text))

    def test_deletion_stays_on_its_file_system(self):
        self.assertEqual(self.run_chroot("forky", "true")[0], 0)
        kept = self.root / "kept"
        kept.mkdir()
        (kept / "file").write_text("")
        script = f'mount --bind "{kept}" "{self.chroots}/forky/tmp"; ' 'exec "$@"'
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
                               *self.command("--delete", "forky")],
                              env=self.environment, capture_output=True, text=True, check=False)
        self.assertTrue((kept / "file").exists(), done)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.run_chroot("forky", "true")[0], 0)
        self.assertEqual(self.run_chroot("--delete", "forky"), (0, "", ""))
        self.assertEqual(list(self.chroots.iterdir()), [])
        self.assertTrue((kept / "file").exists())


if __name__ == "__main__":
    unittest.main()
