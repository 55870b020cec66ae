"""Starts jobs of launch_probe and checks what they leave behind."""
import ctypes.util
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
# Far beyond the duration of any test: a hang is a failure, not a wait.
LIMIT = 120 * over.PATIENCE
# Open MPI needs a flag for more ranks than cores, and another for root.
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
HYDRA = ["mpiexec.hydra"]


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
        return found + (["hydra"] if shutil.which(HYDRA[0]) and ctypes.util.find_library("pmi2") else [])

    def has_pmix(self):
        said = subprocess.run([self.probe, "place"], capture_output=True, text=True, check=False,
                              env={**os.environ, "HYDRANT_BOOTSTRAP": "pmix"}).stderr
        return "cannot be loaded" not in said and "was built without" not in said


class Job:
    """A running job: `launcher` is "hydrant-run", "fork", "mpirun", "hydra" or "alone"."""

    def __init__(self, build, launcher, size, *steps, options=(), before=None, **variables):
        self.marker = uuid.uuid4().hex
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
                                        stderr=self.errors, preexec_fn=before)

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
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

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


def leftovers():
    """Names that a job could leave behind: files in /dev/shm and /tmp, abstract sockets."""
    names = {str(path) for folder in ("/dev/shm", "/tmp") for path in pathlib.Path(folder).iterdir()
             if "hydrant" in path.name}
    with open("/proc/net/unix", encoding="ascii", errors="replace") as sockets:
        return names | {line.split()[-1] for line in sockets if "@hydrant-" in line}


def new_leftovers(before):
    """New names that stay; names of other tests come and go."""
    deadline = time.monotonic() + LIMIT
    kept = leftovers() - before
    while kept and time.monotonic() < deadline:
        time.sleep(0.05)
        kept &= leftovers()
    return kept
