"""Starts jobs of launch_probe and checks what they leave behind."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

import over

SKIPPED = 77
MARKER = "HYDRANT_TEST_MARKER"
# In the marker of each job of this script.
SCRIPT = uuid.uuid4().hex
# Far beyond the duration of any test: a hang is a failure, not a wait.
LIMIT = 120 * over.PATIENCE
# Open MPI needs a flag for more ranks than cores, and another for root.
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
HYDRA = ["mpiexec.hydra"]


def own_group():
    """A group that the jobs of this script run in, which tells their files from those of other tests on the
    machine; None if this user may not choose one."""
    group = 1_000_000 + os.getpid()
    try:
        subprocess.run(["true"], group=group, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return group


GROUP = own_group()


class Build:
    """Paths of the programs of a build."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.probe = str(folder / "tests/integration/launch/launch_probe")
        self.hydrant_run = str(folder / "bin/hydrant-run")

    def has_hydrant_run(self):
        return os.access(self.hydrant_run, os.X_OK)

    def foreign_launchers(self):
        """Installed launchers for which this build has the library."""
        found = ["mpirun"] if shutil.which(MPIRUN[0]) and self.has_pmix() else []
        return found + (["hydra"] if over.hydra_starts() else [])

    def has_pmix(self):
        said = subprocess.run([self.probe, "place"], capture_output=True, text=True, check=False,
                              env={**os.environ, "HYDRANT_BOOTSTRAP": "pmix"}).stderr
        return "cannot be loaded" not in said and "was built without" not in said


class Job:
    """A running job: `launcher` is "hydrant-run", "fork", "mpirun", "hydra" or "alone"."""

    def __init__(self, build, launcher, size, *steps, options=(), before=None, **variables):
        self.marker = f"{SCRIPT}-{uuid.uuid4().hex}"
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("GASNET_", "HYDRANT_", "FIREHOSE_", "PMI", "OMPI", "SLURM"))}
        environment.update({MARKER: self.marker, "LC_ALL": "C", **over.variables(), **variables})
        launcher = over.launcher(launcher)
        count = ["-n", str(size)]
        start = {
            "hydrant-run": [build.hydrant_run, *count, *over.options(size), *options],
            "mpirun": [*MPIRUN, *count, *options],
            "hydra": [*HYDRA, *count, *options],
        }.get(launcher, [])
        if launcher == "fork":
            environment["GASNET_PSHM_NODES"] = str(size)
        self.printed = ""
        self.output = tempfile.TemporaryFile("w+")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*start, build.probe, *steps], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=self.errors, preexec_fn=before, group=GROUP)

    def wait(self):
        """Exit code as a shell shows it, output, errors."""
        try:
            code = self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise
        self.printed, said = self.read_shared(), self.read(self.errors)
        self.output.close()
        self.errors.close()
        return (code if code >= 0 else 128 - code), self.printed, said

    @staticmethod
    def read(file):
        # Not seek(): the processes write at the file offset that they share.
        return os.pread(file.fileno(), 1 << 24, 0).decode()

    def wait_for(self, text, count=1):
        """Waits until the output contains `text` `count` times."""
        self.wait_until(lambda: self.read_shared().count(text) >= count, text)

    def wait_for_error(self, text):
        """Waits until the standard error contains `text`."""
        self.wait_until(lambda: text in self.read(self.errors), text)

    def wait_until(self, condition, text):
        deadline = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.kill_all()
                raise AssertionError(f"no {text!r} in {self.read_shared()!r} {self.read(self.errors)!r}")
            time.sleep(0.01)

    def read_shared(self):
        return self.printed if self.output.closed else self.read(self.output)

    def pids(self):
        """rank -> pid, parsed from the output of `place`."""
        lines = [line.split() for line in self.read_shared().splitlines() if " by " in line]
        return {int(words[1]): int(words[-1]) for words in lines}

    def survivors(self):
        """Processes of this job that still run, found by a marker in their environment."""
        return [int(entry.name) for entry in processes() if has_marker(entry, self.marker)]

    def wait_until_gone(self):
        """The processes that are left after a while; [] is success."""
        deadline = time.monotonic() + LIMIT
        while self.survivors() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.process.wait(timeout=LIMIT)
        return self.survivors()

    def kill_all(self):
        for pid in self.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def processes():
    return [entry for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def has_marker(process, marker):
    try:
        return marker.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def is_own_file(path):
    try:
        status = path.lstat()
    except OSError:
        return False  # another test's, which has removed it
    return status.st_gid == GROUP if GROUP is not None else status.st_uid == os.geteuid()


def sockets_of_others():
    """Inodes of the sockets of all processes but those of this script's jobs."""
    links = set()
    for process in processes():
        if has_marker(process, SCRIPT):
            continue
        try:
            links |= {os.readlink(entry) for entry in (process / "fd").iterdir()}
        except OSError:
            continue
    return {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}


def leftovers():
    """Names that the jobs of this script could leave behind: files in /dev/shm and /tmp, abstract sockets."""
    names = {str(path) for folder in ("/dev/shm", "/tmp") for path in pathlib.Path(folder).iterdir()
             if "hydrant" in path.name and is_own_file(path)}
    with open("/proc/net/unix", encoding="ascii", errors="replace") as lines:
        rows = [line.split() for line in lines if "@hydrant-" in line]
    if not rows:
        return names
    others = sockets_of_others() | {"0"}  # 0: one that was not accepted yet
    return names | {row[-1] for row in rows if row[-2] not in others}


def new_leftovers(before):
    """New names that stay; names of other tests come and go."""
    deadline = time.monotonic() + LIMIT
    kept = leftovers() - before
    while kept and time.monotonic() < deadline:
        time.sleep(0.05)
        kept &= leftovers()
    return kept
