"""Google Benchmark's JSON as samples by row, and the few statistics the report uses."""
import json
import random
import statistics


class Rows:
    """Rows of one or more programs: name -> samples, one per repetition."""

    def __init__(self):
        self.samples = {}   # row -> [{"real_time": ns, counters...}]
        self.skipped = {}   # row -> reason
        self.context = {}

    def load(self, path):
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        self.context.update(document.get("context", {}))
        for entry in document["benchmarks"]:
            if entry.get("run_type") != "iteration":
                continue
            name = tidy(entry["name"])
            if entry.get("error_occurred"):
                self.skipped[name] = entry.get("error_message", "no reason given")
            else:
                self.samples.setdefault(name, []).append(entry)

    def values(self, row, key="real_time"):
        """All samples of one row; [] if it did not run. A counter that is 0 is left out of the JSON."""
        return [entry.get(key, 0.0) for entry in self.samples.get(row, [])]

    def holds(self, row):
        """For a row of pin_hit_bench: ns per hold+release of the median batch of each repetition."""
        return self.values(row, "p50_ns")

    def median(self, row, key="real_time"):
        values = self.values(row, key)
        return statistics.median(values) if values else None

    def matching(self, prefix):
        return sorted(name for name in {*self.samples, *self.skipped} if name.startswith(prefix))


def tidy(name):
    """Strips Google Benchmark's decorations, which are the same for all rows."""
    return "/".join(part for part in name.split("/")
                    if part != "manual_time" and not part.startswith("iterations:"))


def quartiles(values):
    """(lower, median, upper); all the same for one sample."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def ratio_interval(ours, theirs, rounds=2000):
    """Ratio of the medians and its 95 % bootstrap interval: (ratio, low, high)."""
    pick = random.Random(1)

    def resampled(values):
        return statistics.median(pick.choices(values, k=len(values)))

    ratios = sorted(resampled(ours) / resampled(theirs) for _ in range(rounds))
    return (statistics.median(ours) / statistics.median(theirs),
            ratios[int(0.025 * rounds)], ratios[int(0.975 * rounds)])


def difference_low(ours, theirs, rounds=2000):
    """Lower end of the 95 % bootstrap interval of the difference of the medians."""
    pick = random.Random(1)
    differences = sorted(statistics.median(pick.choices(ours, k=len(ours))) -
                         statistics.median(pick.choices(theirs, k=len(theirs))) for _ in range(rounds))
    return differences[int(0.025 * rounds)]


def verdict(value, bound, low=None):
    """Whether `value` is at most `bound`. Within a tenth of it, an interval that reaches it suffices."""
    if value is None:
        return "not run"
    if value <= bound:
        return "yes"
    if low is not None and value <= 1.1 * bound and low <= bound:
        return "within noise"
    return "NO"


def thread_counts(rows):
    """The numbers of threads that pin_hit_bench ran with."""
    return sorted({int(name.rsplit(":", 1)[1]) for name in rows.samples if name.startswith("floor/empty/")})


def gib_per_s(size, ns):
    """Bandwidth in GiB/s, the unit of all reports."""
    return size / ns * 1e9 / 2**30


def duration(ns):
    """Formats a time for display."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"
