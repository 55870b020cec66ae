"""The report's lines about the machine, and hydrant-info's advice."""
import json
import os
import platform
import subprocess

ENOUGH_LOCKED_BYTES = 256 << 20  # the largest working set of the sweep


class Machine:
    """Facts about the machine, collected once before the benchmarks run."""

    def __init__(self, build):
        self.info_program = os.path.join(build, "bin", "hydrant-info")
        self.load = os.getloadavg()[0]
        self.cores = len(os.sched_getaffinity(0))
        try:
            self.info = json.loads(self._ask("--json"))
        except (OSError, ValueError, subprocess.SubprocessError):
            self.info = {}

    def _ask(self, *arguments):
        command = [self.info_program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    def heading(self):
        """Lines about the machine, with notes on conditions that distort the figures."""
        limits = self.info.get("limits", {})
        locked = limits.get("memlock_bytes")
        if limits.get("memlock_lifted") or (limits and locked is None):
            locked_text = "unlimited"
        else:
            locked_text = f"at most {locked >> 10} KiB" if locked else "unknown"
        lines = [f"{cpu_model()}, {self.cores} cores; {platform.system()} {platform.release()}; "
                 f"locked memory: {locked_text}"]
        if self.load > 0.5 * self.cores:
            lines.append(f"NOTE: the machine was busy when this began (load {self.load:.1f} on {self.cores} "
                         "cores). Where threads compete for a core, stalls, longest hits and rows of all "
                         "cores say little.")
        if self.cores == 1:
            lines.append("NOTE: one core: these figures do not show how threads affect each other.")
        lines += self._caching()
        lines += [f"Registrar {one['name']} is not used: {one['reason']}"
                  for one in self.info.get("registrars", []) if not one["usable"]]
        return lines

    def _caching(self):
        """The kinds of memory that can be cached here, in at most two lines; hydrant-info has the rest."""
        watching = self.info.get("watching")
        if not watching:
            return []
        rows = {row["memory"]: row for row in watching["coverage"]}
        plain, hooked = (rows["anonymous"][key] or "not known" for key in ("without_hooks", "with_hooks"))
        arena, files = (rows[memory]["without_hooks"] or "not known" for memory in ("arena", "files"))
        words = {"checked": "cached, each use queries the kernel", "watched": "cached, hits free of checks",
                 "arena": "cached, hits free of checks", "none": "not cached"}
        lines = [f"Caching here (watch = auto): anonymous memory {words.get(plain, plain)}; with the hooks "
                 f"library {words.get(hooked, hooked)}; arenas {words.get(arena, arena)}; files "
                 f"{words.get(files, files)}"]
        if not watching["userfaultfd"]["available"]:
            lines.append(f"No userfaultfd: {watching['userfaultfd']['reason']}")
        lines += [f"Advice: {text}" for text in watching["advice"]]
        return lines

    def limits_are_low(self):
        limits = self.info.get("limits", {})
        locked = limits.get("memlock_bytes")
        low = locked is not None and not limits.get("memlock_lifted") and locked < ENOUGH_LOCKED_BYTES
        return low or any(one["name"] in ("uring", "mlock") and not one["usable"]
                          for one in self.info.get("registrars", []))

    def advice(self):
        """Output of hydrant-info without the table of variables; "" if no limit affects the cache."""
        if not self.limits_are_low():
            return ""
        try:
            text = self._ask().split("\nEnvironment variables")[0].rstrip()
        except (OSError, subprocess.SubprocessError):
            return ""
        kib = ENOUGH_LOCKED_BYTES >> 9
        return "\n".join([
            f"Limits are low here: rows were skipped, or the budget was small. {self.info_program} says:", "",
            *("  " + line for line in text.splitlines()), "",
            f"  To lift the locked-memory limit for a shell: ulimit -l {kib} (in KiB). Above the hard",
            "  limit that takes root, or a line 'USER - memlock unlimited' in /etc/security/limits.conf and",
            "  a new login."])


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
