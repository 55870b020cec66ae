#!/usr/bin/python3
"""The races of ./run --peers: Hydrant beside the newest peers that Debian packages.

Builds Hydrant in the suites trixie and forky (scripts/chroot), compiles the programs of bench/gasnet there
against Hydrant and against the suites' GASNet and MPIs, and runs all of a race in turn. Prints each table,
and writes build/report/peers.md (all tables, versions, rows that lose) and peers.json (all samples). If a
suite cannot be prepared its columns are absent, the report has the reason, and the exit status is 1. If no
race can be run, no report is written.
"""
import argparse
import collections
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.join(sys.path[0], "gasnet"))
import compare  # noqa: E402
from report.machine import cpu_model  # noqa: E402
from report.samples import Rows  # noqa: E402
from report.tables import REGIONS, render  # noqa: E402

RACES = ("hits", "messages", "puts", "atomics", "strided", "collectives")
SUITES = ("trixie", "forky")
TOOLS = ("g++ cmake ninja-build pkg-config ccache python3 liburing-dev libbenchmark-dev libcli11-dev "
         "nlohmann-json3-dev")
MPIS = "libopenmpi-dev openmpi-bin libmpich-dev mpich"
REPETITIONS = 5
SECONDS = 120        # limit for one run of a program
BUILD_SECONDS = 2400  # limit for one suite's preparation
NOT_STARTED = 125    # status of scripts/chroot whose last line says what to do

# All that an installation has.
LIBRARY_TARGETS = ["firehose/all", "rdma/all", "am/all", "extended/all", "hydrant_shared", "hydrant_static",
                   "hydrant_injected"]

# Race -> program of bench/gasnet, its arguments, ns per unit of its table. All run in forky.
PROGRAMS = {"messages": ("am_compare", ["4000"], 1), "puts": ("rma_compare", ["20000"], 1),
            "atomics": ("atomic_compare", ["50"], 1), "strided": ("vis_compare", [], 1),
            "collectives": ("coll_compare", ["25"], 1000)}
CONTROLS = {"bare", "loop", "bound"}  # rows with such a word call no library: they show the noise
LOSES = 1.01                          # ratio from which a row counts as lost

# Packages whose versions the report names; g++ is a metapackage, whose version may be behind.
VERSIONS = {"libucx0": "UCX", "openmpi-bin": "Open MPI", "mpich": "MPICH",
            "libgasnet-dev": "GASNet", "libfabric1": "libfabric"}
ABSENT = """Not in any race: libfabric, whose cache has no public interface, and of whose providers none that
uses it runs without an adapter; GASNet's firehose, which has no interface outside a conduit."""


class Failed(Exception):
    """A suite cannot take part; the text is the reason."""


class Suite:
    """A system of scripts/chroot with Hydrant's release build and the races' programs."""

    def __init__(self, name):
        self.name = name
        self.build = f"build/peers-{name}"
        self.programs = f"{self.build}/programs"
        self.log = f"build/logs/peers-{name}.log"
        self.missing = None  # why it takes no part

    def words(self, *command):
        return ["scripts/chroot", self.name, *command]

    def shell(self, script):
        """Runs the script there; its output is added to the log."""
        with open(self.log, "a", encoding="utf-8") as log:
            print(f"$ {script}", file=log, flush=True)
            begin = log.tell()
            status = subprocess.run(self.words("sh", "-euc", script), stdout=log, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS, check=False).returncode
        if status != 0:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                log.seek(begin)
                lines = [line.strip() for line in log if line.strip()]
            rest = "" if status == NOT_STARTED else f" (all of it: {self.log})"
            raise Failed(f"{lines[-1] if lines else f'status {status}'}{rest}")

    def output(self, script):
        done = subprocess.run(self.words("sh", "-c", script), capture_output=True, text=True, timeout=60,
                              check=False)
        return done.stdout.strip()

    def prepare(self, races):
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        with open(self.log, "w", encoding="utf-8"):
            pass
        jobs = [race for race in races if race in PROGRAMS]
        packages = TOOLS + " libucx-dev" * ("hits" in races)
        if self.name == "forky" and jobs:
            # GASNet's library contains the spawner of Debian's MPI, Open MPI, which its flags leave out.
            packages += " libgasnet-dev libopenmpi-dev openmpi-bin"
        if "collectives" in jobs:
            packages += f" {MPIS}"
        self.shell(f"""export DEBIAN_FRONTEND=noninteractive
            dpkg-query -W {packages} >/dev/null 2>&1 || apt-get update
            apt-get install -y --no-install-recommends {packages}""")
        if "hits" in races or self.name == "forky":
            self._build(hits="hits" in races, library=self.name == "forky" and bool(jobs))
        os.makedirs(self.programs, exist_ok=True)
        if self.name == "forky":
            for race in jobs:
                self._compile_jobs(PROGRAMS[race][0])
        if "collectives" in jobs:
            for mpi in ("openmpi", "mpich"):
                self.shell(f"mpicc.{mpi} -O2 bench/gasnet/coll_mpi.c -o {self.programs}/coll_mpi-{mpi}")

    def _build(self, hits, library):
        targets = ["pin_hit_bench"] * hits + LIBRARY_TARGETS * library
        # CMake's preset `release`, in larger pieces.
        self.shell(f"""cmake --preset release -B {self.build} -DHYDRANT_UNITY=ON -DHYDRANT_BUILD_TOOLS=OFF
            cmake --build {self.build} --target {' '.join(targets)}""")
        if library:
            self.shell(f'cmake --install {self.build} --prefix "$PWD/{self.build}/installed"')

    def _compile_jobs(self, program):
        words = f"-O2 -D_GNU_SOURCE -DGASNET_SEQ=1 bench/gasnet/{program}.c -o {self.programs}/{program}"
        pkgconfig = "pkg-config --cflags --libs gasnet-smp-seq"
        self.shell(f"""gcc {words}-ours \\
              $(PKG_CONFIG_PATH="$PWD/{self.build}/installed/lib/pkgconfig" {pkgconfig})
            mpicc.openmpi {words}-gasnet $({pkgconfig})""")

    def versions(self):
        names = " ".join(VERSIONS)
        text = self.output(f"dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Status}}\\n' {names} "
                           "2>/dev/null; echo g++ $(g++ -dumpfullversion); getconf GNU_LIBC_VERSION")
        found = []
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and words[2] == "installed":
                found.append(f"{VERSIONS[words[0]]} {words[1].split(':')[-1]}")
            elif words and words[0] in ("g++", "glibc"):
                found.append(line)
        return ", ".join(found)

    def flags(self):
        pattern = "s/^CMAKE_CXX_FLAGS_RELWITHDEBINFO:[A-Z]*=//p"
        return self.output(f"sed -n '{pattern}' {self.build}/CMakeCache.txt")


class Peers:
    def __init__(self, races, report):
        self.races = races
        self.report = report
        self.suites = {name: Suite(name) for name in SUITES
                       if name == "forky" or {"hits", "collectives"} & set(races)}
        self.sections, self.losing, self.samples = [], [], {}
        self.ahead = []  # words that give a program real-time priority
        self.failures = []
        self.started = time.monotonic()

    def prepare(self):
        """Leaves those suites and races that can take part."""
        self._say("Preparing the suites: a few minutes the first time")
        for suite in self.suites.values():
            begin = time.monotonic()
            try:
                suite.prepare(self.races)
                self._say(f"{suite.name}: ready, {time.monotonic() - begin:.0f} s")
            except (Failed, OSError, subprocess.SubprocessError) as error:
                suite.missing = str(error)
                self.failures.append(f"{suite.name}: {error}")
                self._say(f"{suite.name}: takes no part: {error}")
        self.suites = {name: suite for name, suite in self.suites.items() if suite.missing is None}
        self.races = [race for race in self.races
                      if "forky" in self.suites or (race == "hits" and self.suites)]
        answers = {suite.output("chrt -f 10 echo yes") for suite in self.suites.values()}
        if answers == {"yes"}:
            self.ahead = ["chrt", "-f", "10"]

    def run(self):
        for race in self.races:
            begin = time.monotonic()
            if race == "hits":
                self._race_hits()
            else:
                self._race_jobs(race)
            self._say(f"{race}: {time.monotonic() - begin:.0f} s")

    @staticmethod
    def _say(text):
        print(text, flush=True)

    def _race_hits(self):
        """Each suite's pin_hit_bench in turn: ours and that suite's UCX take turns within it as well."""
        rows = {name: Rows() for name in self.suites}
        pattern = "^(hydrant/(region|page)|ucx|ucx-limited|floor/locked)/regions"
        for turn in range(3):
            for name, suite in self.suites.items():
                out = f"{suite.build}/hits-{turn}.json"
                command = suite.words(*self.ahead, f"{suite.build}/bench/pin_hit_bench",
                                      f"--benchmark_out={out}", "--benchmark_out_format=json",
                                      "--benchmark_repetitions=3", "--benchmark_min_time=0.01",
                                      f"--benchmark_filter={pattern}")
                try:
                    subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
                    rows[name].load(out)
                except subprocess.SubprocessError as error:
                    reason = (getattr(error, "stderr", None) or "")[-300:].strip()
                    self.failures.append(f"hits in {name}: {error}: {reason}")
        self._tell_hits({name: found for name, found in rows.items() if found.samples})

    def _tell_hits(self, rows):
        header, body = ["regions x threads"], []
        for name in rows:
            header += [f"ours, {name}", "UCX", "UCX, limited", "locked inc+dec", "ours / UCX", "/ limited"]
        threads = sorted({int(row.rsplit(":", 1)[1]) for found in rows.values() for row in found.samples})
        for regions, count in ((regions, count) for count in threads for regions in REGIONS):
            end = f"/regions:{regions}/threads:{count}"
            cells = [f"{regions} x {count}"]
            for name, found in rows.items():
                middle = {row: statistics.median(found.holds(row + end)) if found.holds(row + end) else None
                          for row in ("hydrant/region", "hydrant/page", "ucx", "ucx-limited", "floor/locked")}
                modes = [middle[row] for row in ("hydrant/region", "hydrant/page") if middle[row]]
                ours = max(modes, default=None)
                shown = [ours, middle["ucx"], middle["ucx-limited"], middle["floor/locked"]]
                ratios = [ours / peer if ours and peer else None for peer in shown[1:3]]
                cells += ["absent" if ns is None else f"{ns:.3g}" for ns in shown]
                cells += ["" if ratio is None else f"{ratio:.2g}" for ratio in ratios]
                self.losing += [f"hit, {cells[0]}, {name}: {ratio:.2f} of {peer}"
                                for ratio, peer in zip(ratios, ("UCX", "UCX, limited"))
                                if ratio and ratio >= LOSES]
            body.append(cells)
        self.samples["hits"] = {name: {row: found.holds(row) for row in found.samples}
                                for name, found in rows.items()}
        self._add("Hits: ns per hold + release per thread, the slower of region and page mode",
                  render(header, body), "Limited: with limits on regions and bytes that are not reached.")

    def _race_jobs(self, race):
        program, arguments, unit = PROGRAMS[race]
        forky = self.suites["forky"]
        commands = {}
        for name in ("ours", "gasnet"):
            commands[name] = forky.words(*self.ahead, f"{forky.programs}/{program}-{name}", *arguments)
        if race == "collectives":
            commands |= self._collectives(commands, arguments)
        names = {"gasnet": "GASNet"}
        programs = {names.get(name, name): words for name, words in commands.items()}
        samples = compare.race(programs, 2, REPETITIONS, SECONDS)
        for name in programs:
            if not any(name in runs for runs in samples.values()):
                self.failures.append(f"{race}: {name} printed nothing: {shlex.join(programs[name])}")
        self._tell_jobs(race, list(programs), samples, unit)

    def _collectives(self, commands, arguments):
        more = {"ours, heap": commands["ours"] + ["heap"]}
        # A launcher has to run while its ranks wait, so it goes ahead of them.
        first = self.ahead[:-1] + ["20"] if self.ahead else []
        for name in reversed(self.suites):
            suite = self.suites[name]
            for mpi, launcher in (("openmpi", "mpirun.openmpi --allow-run-as-root -n 2"),
                                  ("mpich", "mpiexec.hydra -n 2")):
                label = {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi]
                more[f"{label}, {name}"] = suite.words(*first, *launcher.split(), *self.ahead,
                                                       f"{suite.programs}/coll_mpi-{mpi}", *arguments)
        return more

    def _tell_jobs(self, race, names, samples, unit):
        self.samples[race] = {compare.row_name(row): runs for row, runs in samples.items()}
        self._tell_losing(race, names, samples)
        notes = []
        if race == "collectives":
            notes = ["Data in the segment; ours, heap: in malloc's memory, as MPI's."]
            mpis = [name for name in names if "MPI" in name]
            self._tell_losing(f"{race} on the heap", ["ours, heap", *mpis], samples)
        unit_name = {1: "ns", 1000: "us"}[unit]
        self._add(f"{race.capitalize()}: two ranks, {unit_name}, median (least to most), {REPETITIONS} runs",
                  compare.table(names, samples, unit), *notes)

    def _tell_losing(self, race, names, samples):
        self.losing += [f"{race}: {compare.row_name(row)}: {ratio:.2f} of {name}"
                        for row, name, ratio in compare.ratios(names, samples)
                        if ratio >= LOSES and not CONTROLS & words_of(row[0]) and name != "ours, heap"]

    def _add(self, title, table, *notes):
        self.sections.append("\n\n".join([f"## {title}", table, *notes]))
        print(f"\n{self.sections[-1]}\n", flush=True)

    def write(self):
        heading = ["# Hydrant beside the newest peers", ""]
        priority = "real-time priority" if self.ahead else "no real-time priority, which is not permitted"
        heading.append(f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores; Linux {os.uname().release}; "
                       f"load {os.getloadavg()[0]:.1f}; {priority}")
        for suite in self.suites.values():
            heading.append(f"{suite.name}: {suite.versions()}; Hydrant there: {suite.flags()}")
        heading += [f"Not in this run: {text}" for text in self.failures] + [ABSENT]
        lost = "\n".join(f"* {text}" for text in self.losing) or "None."
        text = "\n\n".join(["\n".join(heading), *self.sections, f"## Rows that Hydrant loses\n\n{lost}"])
        print("\n".join(heading[2:]) + f"\n\nRows that Hydrant loses:\n{lost}\n")
        files = [os.path.join(self.report, name) for name in ("peers.md", "peers.json")]
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(text + "\n")
        with open(files[1], "w", encoding="utf-8") as file:
            json.dump({"heading": heading, "losing": self.losing, "failures": self.failures,
                       "samples": self.samples}, file, indent=1)
        print(f"Took {time.monotonic() - self.started:.0f} s. Written: {', '.join(files)}")


def words_of(text):
    return set(text.replace(",", " ").replace("_", " ").split())


def races_of(text):
    chosen = collections.OrderedDict.fromkeys(text.split(",")) if text else RACES
    wrong = [race for race in chosen if race not in RACES]
    if wrong:
        raise argparse.ArgumentTypeError(f"'{wrong[0]}' is no race; races are {', '.join(RACES)}")
    return list(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("races", nargs="?", type=races_of, default=list(RACES), metavar="RACE[,RACE]",
                        help=f"{', '.join(RACES)} (default: all)")
    parser.add_argument("--report", default="build/report",
                        help="directory of the report (default: %(default)s)")
    options = parser.parse_args()
    os.makedirs(options.report, exist_ok=True)
    peers = Peers(options.races, options.report)
    peers.prepare()
    if not peers.races:
        print("No race can be run, so no report was written.", file=sys.stderr)
        return 1
    peers.run()
    peers.write()
    return 1 if peers.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped before the end: no report was written.", file=sys.stderr)
        sys.exit(130)
