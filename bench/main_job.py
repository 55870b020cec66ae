#!/usr/bin/python3
"""The main job: runs every benchmark on this machine and writes one readable report.

Runs the benchmark programs of a release build one after the other, shows progress, prints a summary and
writes to build/report/: report.md (all tables), report.json (samples, medians, goals), hit_cost.png,
sweep.png, put_get.png, firehose.png and raw/ (each program's own JSON). Exit status 1 if a program failed.
A figure that misses its goal is printed, but is not a failure.
"""
import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from report import coherence, exchange, messages, remote, summary, tables  # noqa: E402
from report.machine import Machine  # noqa: E402
from report.samples import Rows, quartiles  # noqa: E402

DEADLINE_SECONDS = 900  # limit for one program; the longest takes a minute in the normal size

QUICK_HITS = "^(hydrant/(region|page)|ucx|floor/(empty|locked))/regions"
QUICK_MISSES = "bytes:(4096|1048576)/pages:small/others:0|^stall/.*pause_us:1000"
QUICK_SWEEP = "^sweep/.*set:(25|100|200)/"

# size -> [(program, repetitions, seconds per sample, filter)]
PLANS = {
    "quick": [("pin_hit_bench", 5, "0.005", QUICK_HITS), ("pin_miss_bench", 5, "0.01", QUICK_MISSES),
              ("pin_sweep_bench", 5, "0.01", QUICK_SWEEP), ("memlock_sweep_bench", 1, "0.01", "mixed"),
              ("invalidate_bench", 1, "0.01", "munmap|free"), ("pin_memory_bench", 1, "0.01", "threads:1/")],
    "normal": [("pin_hit_bench", 9, "0.01", "-^ucx-limited"), ("pin_miss_bench", 9, "0.01", "."),
               ("pin_sweep_bench", 9, "0.01", "."), ("memlock_sweep_bench", 3, "0.01", "."),
               ("invalidate_bench", 3, "0.01", "."), ("pin_memory_bench", 1, "0.01", ".")],
    "full": [("pin_hit_bench", 25, "0.05", "-^ucx-limited"), ("pin_miss_bench", 25, "0.01", "."),
             ("pin_sweep_bench", 25, "0.01", "."), ("memlock_sweep_bench", 9, "0.01", "."),
             ("invalidate_bench", 9, "0.01", "."), ("pin_memory_bench", 3, "0.01", ".")],
}

# Programs that are jobs: (program, ranks, HYDRANT_PATH, further arguments)
JOBS = [("am_bench", 2, None, []), ("am_bench", 4, None, []), ("barrier_bench", 2, None, []),
        ("barrier_bench", 4, None, []), ("coll_bench", 2, None, []), ("coll_bench", 4, None, []),
        ("rma_bench", 2, None, []),
        ("rma_bench", 2, "am", ["--rows", "blocking"])]
JOB_REPETITIONS = {"quick": 3, "normal": 9, "full": 25}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build/release", help="build directory (default: %(default)s)")
    parser.add_argument("--report", default="build/report",
                        help="directory of the report (default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick",
                      help="take about twenty seconds")
    size.add_argument("--full", dest="size", action="store_const", const="full", help="run more repetitions")
    parser.add_argument("--keep-plot", metavar="FILE", help="also draw the hit-cost plot, small, to FILE")
    parser.set_defaults(size="normal")
    options = parser.parse_args()
    try:  # fails before the measurements, not after them
        from report import plots  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        print(f"main_job.py: cannot draw the plots: {error}. "
              "On Debian: apt-get install python3-matplotlib", file=sys.stderr)
        return 2
    job = Job(options, plots)
    failed = job.run()
    job.report()
    return 1 if failed else 0


class Job:
    def __init__(self, options, plots):
        self.options = options
        self.plots = plots
        self.bench = os.path.join(options.build, "bench")
        self.raw = os.path.join(options.report, "raw")
        self.machine = Machine(options.build)
        self.rows = Rows()
        self.jobs = {"am_bench": [], "barrier_bench": [], "coll_bench": [], "rma_bench": [],
                     "firehose_bench": []}
        self.instructions = None
        self.instruction_text = "not run at this size"
        self.failures = []
        self.started = time.monotonic()
        os.makedirs(self.raw, exist_ok=True)

    def run(self):
        """Runs every program; True if one failed."""
        plan = PLANS[self.options.size]
        steps = len(plan) + len(JOBS) + (self.options.size != "quick") + 1
        for number, (program, repetitions, seconds, rows) in enumerate(plan, 1):
            out = os.path.join(self.raw, program + ".json")
            command = [os.path.join(self.bench, program), f"--benchmark_out={out}",
                       "--benchmark_out_format=json", f"--benchmark_repetitions={repetitions}",
                       f"--benchmark_min_time={seconds}",
                       f"--benchmark_filter={rows}"]
            title = f"[{number}/{steps}] {program}, {repetitions} repetition" + "s" * (repetitions != 1)
            text = self._step(title, command, out)
            if text is not None:
                self._load(out, text)
        for number, (program, ranks, path, more) in enumerate(JOBS, len(plan) + 1):
            forced = f", path {path}" if path else ""
            self._run_job(f"[{number}/{steps}] {program}, {ranks} ranks{forced}", program, ranks, path, more)
        if self.options.size != "quick":
            self._count_instructions(f"[{steps - 1}/{steps}] instruction_count, under valgrind")
        self._compare_firehose(f"[{steps}/{steps}] firehose_bench")
        return bool(self.failures)

    def _run_job(self, title, program, ranks, path, more):
        name = "_".join([program, str(ranks)] + ([path] if path else []))
        out = os.path.join(self.raw, name + ".json")
        command = [os.path.join(self.options.build, "bin", "hydrant-run"), "-n", str(ranks),
                   os.path.join(self.bench, program), *self._job_arguments(out), *more]
        self._run_table(title, program, command, out, {"HYDRANT_PATH": path} if path else {})

    def _compare_firehose(self, title):
        out = os.path.join(self.raw, "firehose_bench.json")
        command = [os.path.join(self.bench, "firehose_bench"), *self._job_arguments(out)]
        self._run_table(title, "firehose_bench", command, out, {})

    def _job_arguments(self, out):
        return ["--repetitions", str(JOB_REPETITIONS[self.options.size]), "--json", out] + \
            (["--quick"] if self.options.size == "quick" else [])

    def _run_table(self, title, program, command, out, environment):
        """Runs a program that writes one JSON object."""
        text = self._step(title, command, out, environment=environment)
        if text is None:
            return
        try:
            self.jobs[program].append(messages.load(out))
        except (OSError, ValueError) as error:
            self.failures.append(f"{out}: {error}\n{text[-1500:]}")

    def _load(self, path, text):
        try:
            self.rows.load(path)
        except (OSError, ValueError) as error:
            self.failures.append(f"{path}: {error}\n{text[-1500:]}")

    def _count_instructions(self, title):
        out = os.path.join(self.raw, "instruction_count.json")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instruction_count")
        command = [sys.executable, script, f"--build={self.options.build}", f"--json={out}"]
        text = self._step(title, command, out, accepted=(0, 1, 77))
        self.instruction_text = (text or "failed").strip()
        if os.path.exists(out):
            with open(out, encoding="utf-8") as file:
                self.instructions = json.load(file)

    def _step(self, title, command, out, accepted=(0,), environment=None):
        """Runs one program under the progress line; its output, or None if it failed."""
        if os.path.exists(out):
            os.remove(out)  # prevents reporting results of an earlier run
        begin = time.monotonic()
        try:
            with open(out + ".log", "w+", encoding="utf-8") as log, \
                    subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                     env=os.environ | (environment or {})) as child:
                status = self._watch(title, child, begin)
                log.seek(0)
                text = log.read()
        except OSError as error:
            status, text = None, str(error)
        self._line(f"{title}: {time.monotonic() - begin:.0f} s", end="\n")
        if status in accepted:
            return text
        what = "could not be started" if status is None else f"status {status}"
        self.failures.append(f"{os.path.basename(command[0])}: {what}\n{text[-1500:]}")
        return None

    def _watch(self, title, child, begin):
        while True:
            try:
                return child.wait(timeout=1)
            except KeyboardInterrupt:
                child.terminate()
                raise
            except subprocess.TimeoutExpired:
                spent = time.monotonic() - begin
                if sys.stdout.isatty():
                    self._line(f"{title} ... {spent:.0f} s", end="")
                if spent > DEADLINE_SECONDS:
                    child.kill()
                    return f"stopped after {spent:.0f} s"

    @staticmethod
    def _line(text, end):
        if sys.stdout.isatty():
            print(f"\r\033[K{text}", end=end, flush=True)
        elif end:
            print(text, flush=True)

    def report(self):
        """Prints the summary and writes the files."""
        sections = [tables.hits(self.rows), tables.misses(self.rows), tables.stalls(self.rows),
                    tables.sweep(self.rows), coherence.memlock(self.rows), coherence.invalidation(self.rows),
                    tables.memory(self.rows), messages.messages(self.jobs["am_bench"]),
                    messages.barriers(self.jobs["barrier_bench"]),
                    messages.collectives(self.jobs["coll_bench"]), exchange.exchange(self.jobs["rma_bench"]),
                    remote.remote(self.jobs["firehose_bench"])]
        parts = [self._heading()] + [f"## {title}\n\n{text}" for title, text, _ in sections]
        parts.insert(2, f"## Instructions of a hit\n\n{self.instruction_text}\n\n"
                        "Goal: at most 35 per hold + release, no locked one, no store to a line that another "
                        "thread reads.")
        if self.failures:
            parts.append("## Failed\n\n" + "\n\n".join(self.failures))
        text = "\n\n".join(parts)
        facts = [fact for _, _, facts in sections for fact in facts]
        print("\n" + summary.wrap(self._heading()) + "\n")
        print(summary.summary(self.rows, self.instruction_text, facts) + "\n")
        print(messages.short(self.jobs["am_bench"], self.jobs["barrier_bench"],
                             self.jobs["coll_bench"]) + "\n")
        print(exchange.short(self.jobs["rma_bench"]) + "\n")
        print(remote.short(self.jobs["firehose_bench"]) + "\n")
        for failure in self.failures:
            print("Failed: " + failure + "\n")
        files = self._write(text, facts)
        print(f"Took {time.monotonic() - self.started:.0f} s. Written:")
        for path in files:
            print(f"  {path}")
        advice = self.machine.advice()
        if advice:
            print("\n" + advice)

    def _heading(self):
        context = self.rows.context
        absent = "libfabric's cache (no public interface), GASNet's firehose (no interface)"
        if "peers_absent" in context:
            absent += ", " + context["peers_absent"]
        lines = ["# Hydrant beside its peers", "", *self.machine.heading(),
                 f"Size: {self.options.size}",
                 f"Peers in this run: {context.get('peers', 'none')}. Not in this run: {absent}."]
        for reason in sorted(set(self.rows.skipped.values())):
            count = sum(one == reason for one in self.rows.skipped.values())
            lines.append(f"Skipped, {count} rows: {reason}")
        return "\n".join(lines)

    def _write(self, text, facts):
        folder = self.options.report
        files = [os.path.join(folder, name) for name in ("report.md", "report.json")]
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(text + "\n")
        summary = {name: dict(zip(("lower", "median", "upper"), quartiles(self.rows.values(name)))) |
                   {"samples": self.rows.values(name)} for name in sorted(self.rows.samples)}
        with open(files[1], "w", encoding="utf-8") as file:
            json.dump({"size": self.options.size, "context": self.rows.context, "goals": facts,
                       "jobs": self.jobs, "instructions": self.instructions, "skipped": self.rows.skipped,
                       "failures": self.failures, "real_time_ns": summary}, file, indent=1)
        for draw, source, name in ((self.plots.hit_cost, self.rows, "hit_cost.png"),
                                   (self.plots.sweep, self.rows, "sweep.png"),
                                   (self.plots.exchange, self.jobs["rma_bench"], "put_get.png"),
                                   (self.plots.firehose, self.jobs["firehose_bench"], "firehose.png")):
            path = os.path.join(folder, name)
            if draw(source, path):
                files.append(path)
        kept = self.options.keep_plot
        if kept and self.plots.hit_cost(self.rows, kept, self.plots.SMALL_DPI):
            files.append(kept)
        return files


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped before the end: no report was written.", file=sys.stderr)
        sys.exit(130)
