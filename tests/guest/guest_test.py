#!/usr/bin/python3
"""guest_test.py [CLASS]: guest.py and kernel.py with false programs in place of QEMU, apt and busybox. Guests
that do not start are ended, reported and started once more; a half-made kernel is never used; a missing
package is a skip or a failure.
"""
import lzma
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import kernel

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "6.1.0-1-amd64"
PATIENCE = float(os.environ.get("HYDRANT_TEST_PATIENCE") or 1)
HANG_SECONDS = 100 * PATIENCE  # only a failure waits for it
# Silence that ends a guest: one that is never to give a byte, and one that has to give one in time.
AT_ONCE, IN_TIME = 0.9, 4.5 * PATIENCE

# A machine reads its number from QEMU's options. $machine_N says what start N of the machines does.
QEMU = r"""#!/bin/sh
for word in "$@"; do
  case $word in
    file,id=console,*) console=${word#*path=}; console=${console%,append=on} ;;
    file,id=status,*) status=${word#*path=}; status=${status%,append=on} ;;
    socket,id=monitor,fd=*) monitor=${word##*=} ;;
    *guest=*) guest=${word##*guest=} ;;
  esac
done
echo >>"$FOLDER/starts.$guest"
start=$(wc -l <"$FOLDER/starts.$guest")
eval "act=\$GUEST_${guest}_START_$start"
echo $$ >>"$FOLDER/processes"
silent() { exec sleep 1000; }
works() {
  echo "kernel of start $start" >>"$console"
  printf '\0'
  printf '\0'
  echo started >>"$status"
  echo "output of start $start"
}
case $act in
  silent) silent ;;
  console) echo "a line, then no more" >>"$console"; silent ;;
  monitor) exec python3 "$FOLDER/monitor.py" "$monitor" ;;
  works) works; echo 0 >>"$status" ;;
  three) works; echo 3 >>"$status" ;;
  stays) works; silent ;;
  slow) works; sleep "$SLOW_SECONDS"; echo "late output"; echo 0 >>"$status" ;;
  dies) echo "a line before its death" >>"$console" ;;
esac
"""
MONITOR = r"""
import json, os, sys
fd = int(sys.argv[1])
os.write(fd, b'{"QMP": {}}\r\n')
dumps = iter([1, 2])
with os.fdopen(os.dup(fd)) as lines:
    for line in lines:
        asked = json.loads(line)
        answer = {"return": {}}
        if asked["execute"] == "human-monitor-command":
            dump = f"CPU#0\r\nRAX={next(dumps)}\r\nRIP=5\r\nES =0\r\nXMM00=0\r\n"
            answer = {"return": dump, "id": asked["id"]}
        os.write(fd, json.dumps(answer).encode() + b"\r\n")
"""


class WithPrograms(unittest.TestCase):
    """A folder with programs that are found before the real ones."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hydrant-guest-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("HYDRANT_") and name not in ("CI", "XDG_CACHE_HOME")}
        self.environment.update(FOLDER=str(self.folder), PATH=f"{self.folder}/bin:{os.environ['PATH']}")

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def kernel(self, root):
        """A kernel as guest.py needs it, without modules."""
        (root / "boot").mkdir(parents=True)
        (root / "boot" / f"vmlinuz-{VERSION}").write_bytes(bytes(1024))
        (root / "lib/modules" / VERSION / "kernel").mkdir(parents=True)

    def run_script(self, *words, **variables):
        """(exit status, output, errors)"""
        done = subprocess.run([sys.executable, "-B", *map(str, words)], env={**self.environment, **variables},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=HANG_SECONDS)
        return done.returncode, done.stdout, done.stderr


class Start(WithPrograms):
    """Guests whose start fails."""

    def setUp(self):
        super().setUp()
        self.program("qemu-system-x86_64", QEMU)
        self.program("busybox", "")
        (self.folder / "monitor.py").write_text(MONITOR)
        self.kernel(self.folder / "root")

    def run_guest(self, *acts, silence=IN_TIME, options=(), **variables):
        """`acts`: of the starts of guest 0; `silence`: the seconds that end a guest."""
        variables.update({f"GUEST_0_START_{start}": act for start, act in enumerate(acts, 1)})
        outcome = self.run_script(HERE / "guest.py", "--kernel", self.folder / "root", *options, "--", "true",
                                  HYDRANT_TEST_PATIENCE=str(silence / 90), **variables)
        for process in (self.folder / "processes").read_text().split():
            self.assertFalse(self.is_there(process), outcome)
        return outcome

    def is_there(self, process):
        """Whether a machine has not ended; its number may be another process's by now."""
        try:
            return str(self.folder).encode() in pathlib.Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            return False

    def assert_starts(self, count, guest=0):
        self.assertEqual((self.folder / f"starts.{guest}").read_text().count("\n"), count)

    def test_a_guest_that_works_is_started_once(self):
        status, output, errors = self.run_guest("works")
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(output, r"\Aoutput of start 1\nguest: kernel \S+, [\d.]+ s, .*, exit status 0\n\Z")
        self.assert_starts(1)

    def test_exit_status_is_the_programs(self):
        status, output, _ = self.run_guest("three")
        self.assertEqual(status, 3, output)
        self.assertIn("exit status 3\n", output)

    def test_a_silent_guest_is_reported_and_started_once_more(self):
        status, output, errors = self.run_guest("silent", "silent", silence=AT_ONCE)
        self.assertEqual(status, 125, output + errors)
        self.assertIn("exit status None, 2 starts of the machine\n", output)
        self.assertEqual(errors.count("no byte for 0.9 s, and its program has not started"), 2, errors)
        self.assertEqual(errors.count("the machine is started again\n"), 1, errors)
        self.assertEqual(errors.count("QEMU's monitor gave no answer within 3 s"), 2, errors)
        self.assertIn("the program has not started in 2 starts of the machine\n", errors)
        self.assert_starts(2)

    def test_a_guest_that_is_silent_once_passes_and_is_counted(self):
        status, output, errors = self.run_guest("console", "works")
        self.assertEqual(status, 0, output + errors)
        self.assertRegex(output, r"\Aoutput of start 2\nguest: .* exit status 0, 2 starts of the machine\n\Z")
        self.assertIn("its console:\na line, then no more\n", errors)
        self.assertIn("the machine is started again\n", errors)
        self.assert_starts(2)

    def test_registers_are_shown(self):
        status, output, errors = self.run_guest("monitor", "dies")
        self.assertEqual(status, 125, output + errors)
        self.assertIn("guest 0: its registers:\nCPU#0\nRAX=1\nRIP=5\na second later:\nCPU#0\nRIP=5\n", errors)
        self.assertNotIn("XMM", errors)
        self.assertIn("guest 0: the last lines of its console:\na line before its death\n"
                      "guest 0: it ended without an exit status\n", errors)

    def test_a_program_may_be_silent(self):
        # Twice as long as a guest may before its program's start.
        status, output, errors = self.run_guest("slow", SLOW_SECONDS=str(2 * IN_TIME))
        self.assertEqual((status, errors), (0, ""), output)
        self.assertIn("output of start 1\nlate output\nguest: ", output)
        self.assert_starts(1)

    def test_a_guest_that_ends_is_not_started_again(self):
        status, output, errors = self.run_guest("dies")
        self.assertEqual(status, 125, output + errors)
        self.assertIn("a line before its death", errors)
        self.assert_starts(1)

    def test_the_deadline_bounds_both_starts(self):
        began = time.monotonic()
        # A patience of 2 multiplies it. It always lasts that long, so that no more than a pause of one half
        # is allowed for.
        half = 8 if PATIENCE <= 2 else 16
        status, output, errors = self.run_guest("monitor", "stays", silence=2 * 90,
                                                options=["--seconds", f"{half}"])
        self.assertEqual(status, 124, output + errors)
        self.assertIn(f"no byte for {half} s", errors)
        self.assertIn(f"killed after {2 * half} s", errors)
        self.assertLess(time.monotonic() - began, HANG_SECONDS / 2)
        self.assert_starts(2)

    def test_both_of_two_guests_are_started_again(self):
        status, output, errors = self.run_guest(
            "stays", "slow", options=["--peer", "true", "--peer-may-end"],
            GUEST_1_START_1="silent", GUEST_1_START_2="works", SLOW_SECONDS="1")
        self.assertEqual(status, 0, output + errors)
        self.assertIn(f"guest 1: no byte for {IN_TIME:g} s, and its program has not started", errors)
        self.assertIn("guest 0: ended with it", errors)
        self.assertIn("guest 1: output of start 2\n", output)
        self.assertIn("2 starts of the machine", output)
        self.assert_starts(2)
        self.assert_starts(2, guest=1)

    def test_patience_has_to_be_a_positive_number(self):
        self.environment["HYDRANT_TEST_PATIENCE"] = ""
        for wrong in ("x", "0", "-1", "nan", "inf"):
            status, _, errors = self.run_script(HERE / "guest.py", "--", "true", HYDRANT_TEST_PATIENCE=wrong)
            self.assertEqual(status, 2, errors)
            self.assertIn(f"HYDRANT_TEST_PATIENCE={wrong} is not a positive number", errors)


class Equipment(WithPrograms):
    """Machines without the packages that guests need: only programs of self.folder are found."""

    def setUp(self):
        super().setUp()
        self.program("busybox", "")
        self.environment["PATH"] = str(self.folder / "bin")
        (self.folder / "home").mkdir()
        self.environment["HOME"] = str(self.folder / "home")

    def test_no_qemu_is_a_skip_and_a_failure_where_ci_is_set(self):
        for ci, expected, begin in (("", 77, "skipped"), ("true", 1, "failed, as CI is set")):
            status, output, _ = self.run_script(HERE / "guest.py", "--", "true", CI=ci)
            self.assertEqual((status, output),
                             (expected, f"{begin}: no qemu-system-x86_64 (Debian: qemu-system-x86)\n"))

    def test_no_kernel_is_always_a_skip(self):
        self.program("qemu-system-x86_64", "")
        for ci in ("", "true"):
            status, output, _ = self.run_script(HERE / "guest.py", "--kernel", self.folder, "--", "true",
                                                CI=ci)
            self.assertEqual(status, 77, output)
            self.assertRegex(output, r"\Askipped: no kernel 6\.1\.x: .*\n\Z")

    def test_no_tools_of_verbs(self):
        # rdma is looked for in /sbin as well.
        for script, package in (("run_pair", "iproute2"), ("run", "iproute2")):
            text = (HERE.parent / "verbs" / script).read_text()
            copy = self.folder / "verbs" / script
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(text.replace("PATH=$PATH:/sbin:/usr/sbin", ""))
            for ci, expected, begin in (("", 77, "skipped"), ("1", 1, "failed, as CI is set")):
                self.program("readlink", '#!/bin/sh\necho "$2"\n')
                self.program("dirname", '#!/bin/sh\necho "${1%/*}"\n')
                done = subprocess.run(["/bin/sh", copy, "--", "true"], env={**self.environment, "CI": ci},
                                      capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
                self.assertEqual(done.returncode, expected, done)
                self.assertRegex(done.stdout, rf"\A{begin}: no \w+ \(Debian: {package}\)\n\Z")


APT_CACHE = f"#!/bin/sh\necho '  Depends: linux-image-{VERSION}'\n"
# The package is an archive of tar. $FAILURES downloads fail.
APT_GET = rf"""#!/bin/sh
echo >>"$FOLDER/downloads"
[ "$(wc -l <"$FOLDER/downloads")" -gt "${{FAILURES:-0}}" ] || {{ echo "no network" >&2; exit 100; }}
echo begun >"$FOLDER/begun"
for step in $(seq "${{DOWNLOAD_STEPS:-0}}"); do sleep 0.1; done
tar -c -f kernel.deb -C "$FOLDER/package" ./boot ./lib
"""
DPKG_DEB = "#!/bin/sh\ncat \"$2\"\n"
# A kernel of another series, in parts, as Linux 7's packages of Debian are.
NEWER = "7.2.12+deb14-amd64"
APT_CACHE_OF_PARTS = f"""#!/bin/sh
case $3 in
  linux-image-amd64) echo '  Depends: linux-base'; echo '  Depends: linux-image-{NEWER}' ;;
  linux-image-{NEWER}) for part in base binary modules; do echo "  Depends: linux-$part-{NEWER}"; done ;;
esac
"""
APT_GET_OF_PARTS = """#!/bin/sh
shift
for package; do tar -c -f "$package.deb" -C "$FOLDER/$package" . || exit 100; done
"""


class Fetch(WithPrograms):
    """Fetches of the kernel with a false apt."""

    def setUp(self):
        super().setUp()
        for name, text in (("apt-cache", APT_CACHE), ("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
            self.program(name, text)
        package = self.folder / "package"
        self.kernel(package)
        wanted = (HERE / "kernel.py").read_text().partition("WANTED = ")[2].partition("DOWNLOAD")[0]
        for name in re.findall(r'"((?:arch|crypto|lib|net|fs|drivers)\b(?!/modules)[\w/]*)"', wanted):
            (package / "lib/modules" / VERSION / "kernel" / name).mkdir(parents=True)
            (package / "lib/modules" / VERSION / "kernel" / name / "a.ko").write_text("a")
        self.kernels = self.folder / "kernels"
        # Two clones, so that neither finds a kernel in the build folder of this one.
        self.clones = [self.folder / name / "tests/guest" for name in ("clone", "other")]
        for clone in self.clones:
            clone.mkdir(parents=True)
            text = (HERE / "kernel.py").read_text()
            # The test must not find an installed kernel.
            self.assertEqual(text.count('["/"]'), 1)
            (clone / "kernel.py").write_text(text.replace('["/"]', "[]")
                                             .replace("PAUSE_SECONDS = 3, 2", "PAUSE_SECONDS = 3, 0"))

    def command(self, *words, clone=0):
        return [sys.executable, "-B", str(self.clones[clone] / "kernel.py"), "--fetch", *map(str, words)]

    def fetch(self, *words, clone=0, **variables):
        return self.run_script(*self.command(*words, clone=clone)[2:], **variables)

    def begin_fetch(self, *words, clone=0, **variables):
        """A fetch that is under way when this returns, if it has to download."""
        process = subprocess.Popen(self.command(*words, clone=clone), env={**self.environment, **variables},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for_download(self):
        limit = time.monotonic() + HANG_SECONDS
        while not (self.folder / "begun").exists():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def assert_fetched(self, outcome, folder):
        status, output, errors = outcome
        self.assertEqual(status, 0, output + errors)
        image = folder / f"linux-image-{VERSION}/boot/vmlinuz-{VERSION}"
        self.assertEqual(output, f"{image}\n", errors)
        self.assertTrue(image.exists())
        self.assertEqual({path.name for path in folder.iterdir()}, {".lock", f"linux-image-{VERSION}"})

    def downloads(self):
        path = self.folder / "downloads"
        return path.read_text().count("\n") if path.exists() else 0

    def test_clones_share_the_cache_folder(self):
        for variables, folder in (({"XDG_CACHE_HOME": str(self.folder / "cache")}, self.folder / "cache"),
                                  ({"HOME": str(self.folder)}, self.folder / ".cache")):
            before = self.downloads()
            for clone in (0, 1):
                outcome = self.fetch(clone=clone, **{"HOME": "/nonexistent", **variables})
                self.assert_fetched(outcome, folder / "hydrant/guest-kernel")
            self.assertEqual(self.downloads(), before + 1)

    def test_without_a_usable_cache_folder_it_is_in_the_build_folder(self):
        (self.folder / "file").write_text("")
        build = self.folder / "clone/build/guest"
        del self.environment["HOME"]
        for variables in ({}, {"HOME": ""}, {"HOME": "/nonexistent/of/hydrant"}, {"HOME": "relative"},
                          {"XDG_CACHE_HOME": "relative"}, {"XDG_CACHE_HOME": str(self.folder / "file")},
                          {"HOME": str(self.folder / "file")}):
            with self.subTest(**variables):
                self.assert_fetched(self.fetch(**variables), build)
                subprocess.run(["rm", "-r", build], check=True)
        self.assertFalse(pathlib.Path("/nonexistent/of").exists())

    def test_a_download_has_three_tries(self):
        status, _, errors = self.fetch(self.kernels, FAILURES="3")
        self.assertEqual(status, 1)
        self.assertEqual((errors.count("no network"), self.downloads()), (3, 3), errors)
        self.assertEqual([path.name for path in self.kernels.iterdir()], [".lock"])
        self.assert_fetched(self.fetch(self.kernels, FAILURES="5"), self.kernels)
        self.assertEqual(self.downloads(), 6)

    def test_a_package_that_is_cut_is_no_kernel(self):
        for cut in ('head -c 2000 "$2"', 'cat "$2"; exit 2'):
            self.program("dpkg-deb", f"#!/bin/sh\n{cut}\n")
            status, output, errors = self.fetch(self.kernels)
            self.assertEqual((status, output), (1, ""), errors)
            self.assertEqual([path.name for path in self.kernels.iterdir()], [".lock"])

    def test_half_of_a_kernel_is_none(self):
        for part in ("boot", "lib"):
            for place in ("", f"linux-image-{VERSION}", ".unfinished-x"):
                with self.subTest(part=part, place=place):
                    folder = self.folder / f"half-{part}-{place}"
                    self.kernel(folder / place)
                    subprocess.run(["rm", "-r", folder / place / part], check=True)
                    status, output, errors = self.fetch(folder)
                    self.assertEqual(status, 0, errors)
                    self.assertEqual(output, f"{folder}/linux-image-{VERSION}/boot/vmlinuz-{VERSION}\n")
                    self.assertFalse((folder / ".unfinished-x").exists())

    def test_kernel_in_parts(self):
        self.program("apt-cache", APT_CACHE_OF_PARTS)
        self.program("apt-get", APT_GET_OF_PARTS)
        modules = pathlib.Path("usr/lib/modules", NEWER)
        module = modules / "kernel/drivers/net/dummy.ko.xz"
        for part, name, content in (("binary", modules / "vmlinuz", bytes(1024)),
                                    ("modules", module, lzma.compress(b"\0depends=\0module")),
                                    ("modules", modules / "kernel/sound/loud.ko.xz", b""),
                                    ("image", "usr/share/doc/copyright", b"")):
            path = self.folder / f"linux-{part}-{NEWER}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        root = self.kernels / f"linux-image-{NEWER}"
        for _ in range(2):
            status, output, errors = self.fetch(HYDRANT_TEST_KERNEL=str(self.kernels))
            self.assertEqual((status, output), (0, f"{root}/lib/modules/{NEWER}/vmlinuz\n"), errors)
        self.assertFalse(list(root.rglob("loud*")))
        self.assertEqual(kernel.Kernel(root, NEWER).modules(["dummy"]), {"dummy": b"\0depends=\0module"})
        # It is not Debian 12's, which is looked for otherwise.
        status, _, errors = self.fetch(self.kernels)
        self.assertEqual(status, 1)
        self.assertIn("linux-image-amd64 is not a kernel 6.1.x here", errors)

    def test_a_killed_fetch_leaves_no_kernel_and_no_obstacle(self):
        for signal_number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=signal_number):
                folder = self.kernels / str(signal_number)
                (self.folder / "begun").unlink(missing_ok=True)
                process = self.begin_fetch(folder, DOWNLOAD_STEPS="10000")
                self.wait_for_download()
                process.send_signal(signal_number)
                process.communicate()
                self.assertFalse(list(folder.glob("linux-image-*")))
                self.assert_fetched(self.fetch(folder), folder)

    def test_two_fetches_at_once(self):
        folder = self.folder / "cache"
        cache = {"XDG_CACHE_HOME": str(folder), "DOWNLOAD_STEPS": "10"}
        first = self.begin_fetch(clone=0, **cache)
        self.wait_for_download()
        second = self.begin_fetch(clone=1, **cache)
        outcomes = [process.communicate(timeout=HANG_SECONDS) for process in (first, second)]
        for process, (output, errors) in zip((first, second), outcomes):
            self.assert_fetched((process.returncode, output, errors), folder / "hydrant/guest-kernel")
        self.assertEqual(self.downloads(), 1)

    def test_fetches_at_once_without_locks(self):
        for clone in self.clones:
            script = clone / "kernel.py"
            script.write_text(script.read_text().replace("fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
                                                         'raise OSError("no locks")'))
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache"), "DOWNLOAD_STEPS": "10"}
        processes = [self.begin_fetch(clone=clone, **cache) for clone in (0, 1)]
        for process in processes:
            _, errors = process.communicate(timeout=HANG_SECONDS)
            self.assertEqual(process.returncode, 0, errors)
        self.assert_fetched(self.fetch(**cache), self.folder / "cache/hydrant/guest-kernel")


if __name__ == "__main__":
    unittest.main()
