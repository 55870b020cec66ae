"""The plots of the report: hits, the working-set sweep, puts and gets by size, firehose and rendezvous."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)
from matplotlib.ticker import FuncFormatter  # noqa: E402

from report import remote  # noqa: E402
from report.exchange import series  # noqa: E402
from report.samples import gib_per_s, quartiles, thread_counts  # noqa: E402
from report.tables import HIT_GOALS_NS, REGIONS  # noqa: E402

DPI, SMALL_DPI = 130, 80  # the small one suits a file that is kept in the repository: under 60 kB

OURS, OURS_2, PEER, FLOOR, OTHER = "#0b6e99", "#5fb0cf", "#c8553d", "#8a8a8a", "#d9a441"


def hit_cost(rows, path, dpi=DPI):
    """A panel per number of threads; bars by number of regions, whiskers are quartiles. False if empty."""
    threads = thread_counts(rows)
    if not threads:
        return False
    series = [("hydrant/region", "ours, region mode", OURS), ("hydrant/page", "ours, page mode", OURS_2),
              ("ucx", "UCX rcache", PEER), ("floor/locked", "locked increment + decrement", FLOOR),
              ("floor/empty", "empty loop", "#d5d5d5")]
    series = [entry for entry in series if rows.matching(entry[0] + "/regions:")]
    figure, panels = plt.subplots(1, len(threads), figsize=(5.6 * len(threads), 4.8), sharey=True,
                                  squeeze=False)
    width = 0.84 / len(series)
    for panel, count in zip(panels[0], threads):
        for place, (prefix, label, colour) in enumerate(series):
            _bars(panel, rows, prefix, count, label, colour, place * width - 0.42 + width / 2, width)
        for i, regions in enumerate(REGIONS):
            if regions in HIT_GOALS_NS:
                panel.hlines(HIT_GOALS_NS[regions], i - 0.46, i - 0.42 + 2 * width, color="black",
                             linestyle=(0, (4, 2)), linewidth=1.3, zorder=4,
                             label="goal for ours" if i == 0 else None)
        panel.set_title(f"{count} thread" + ("s" if count > 1 else ""))
        panel.set_xticks(range(len(REGIONS)), [f"{regions:,}" for regions in REGIONS])
        panel.set_xlabel("pinned regions of 64 KiB, random order")
        _style(panel)
    panels[0][0].set_ylabel("ns per hold + release per thread (log)")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False, fontsize=9,
                  bbox_to_anchor=(0.5, 0.03))
    figure.text(0.5, 0.015, "Bars are medians, whiskers quartiles over the repetitions.", ha="center",
                fontsize=8, color="#404040")
    figure.suptitle("Cost of a hit", fontsize=13, fontweight="bold")
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    _save(figure, path, dpi)
    return True


def _bars(panel, rows, prefix, threads, label, colour, offset, width):
    for i, regions in enumerate(REGIONS):
        values = rows.holds(f"{prefix}/regions:{regions}/threads:{threads}")
        if not values:
            continue
        low, middle, high = quartiles(values)
        panel.bar(i + offset, middle, width * 0.94, color=colour, label=label if i == 0 else None,
                  yerr=[[middle - low], [high - middle]], zorder=3,
                  error_kw={"linewidth": 0.9, "ecolor": "#303030"})
        if prefix.startswith("hydrant/"):  # inside the bar, where the line of the goal does not cross it
            panel.annotate(_short(middle), (i + offset, low), xytext=(0, -10), textcoords="offset points",
                           ha="center", fontsize=7, color="white", zorder=5)
        else:
            panel.annotate(_short(middle), (i + offset, high), xytext=(0, 2), textcoords="offset points",
                           ha="center", fontsize=7, zorder=5)


def _short(ns):
    if ns >= 1000:
        return f"{ns / 1000:.1f}k"
    return f"{ns:.2f}" if ns < 1 else f"{ns:.1f}" if ns < 10 else f"{ns:.0f}"


def sweep(rows, path):
    """Time per use and registrations per use over the working set. False if there is nothing to draw."""
    series = [("firehose", "firehose, region mode", OURS, "o"),
              ("firehose_page", "firehose, 64 KiB pages", OURS_2, "v"),
              ("register", "register every time", OTHER, "s"),
              ("copy", "copy through a pinned buffer", PEER, "^"),
              ("pin_everything", "pin everything (not allowed past the budget)", FLOOR, "D")]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.2, 4.8))
    drawn = False
    for strategy, label, colour, marker in series:
        points = sorted((int(name.rsplit(":", 1)[1]), name) for name in rows.matching(f"sweep/{strategy}/")
                        if name in rows.samples)
        if not points:
            continue
        drawn = True
        sets = [percent / 100 for percent, _ in points]
        bands = [quartiles(rows.values(name)) for _, name in points]
        low, middle, high = zip(*bands)
        low, middle, high = ([ns / 1000 for ns in band] for band in (low, middle, high))
        left.plot(sets, middle, color=colour, marker=marker, markersize=4.5, label=label, zorder=3)
        left.fill_between(sets, low, high, color=colour, alpha=0.2)
        if strategy in ("firehose", "firehose_page", "register"):
            right.plot(sets, [rows.median(name, "registrations_per_use") for _, name in points], color=colour,
                       marker=marker, markersize=4.5, label=label, zorder=3)
    left.set_yscale("log")
    left.set_ylabel("µs per use, data movement not included (log)")
    right.set_ylabel("registrations per use")
    right.set_ylim(bottom=0)
    for panel in (left, right):
        panel.axvline(1.0, color="black", linestyle=(0, (4, 2)), linewidth=1, label="the budget")
        panel.set_xlabel("working set / budget")
        _style(panel, minor=panel is left)
        panel.legend(frameon=False, fontsize=9)
    figure.suptitle("Random uses of 4 KiB to 1 MiB over a working set", fontsize=13, fontweight="bold")
    figure.tight_layout()
    if drawn:
        _save(figure, path)
    return drawn


EXCHANGE_STYLES = {  # label -> colour, line
    "ours, segment": (OURS, "-"), "ours, heap": (OURS_2, "-"),
    "ours, Active Messages, segment": (OTHER, "-"), "ours, Active Messages, heap": (OTHER, "--"),
    "memcpy": (FLOOR, "-"), "process_vm_readv/writev": (FLOOR, "--"),
    "UCX, segment": (PEER, "-"), "UCX, heap": (PEER, "--")}


def exchange(tables_of_jobs, path):
    """Time and bandwidth of blocking puts and gets over the size. False if there is nothing to draw."""
    figure, panels = plt.subplots(2, 2, figsize=(11.2, 8.4), sharex=True)
    drawn = False
    for column, direction in zip(panels.T, ("put", "get")):
        for label, points in series(tables_of_jobs, direction).items():
            drawn = True
            colour, line = EXCHANGE_STYLES[label]
            sizes = [size for size, _ in points]
            column[0].plot(sizes, [ns for _, ns in points], color=colour, linestyle=line, label=label)
            column[1].plot(sizes, [gib_per_s(size, ns) for size, ns in points], color=colour, linestyle=line)
        column[0].set_title(direction)
        column[1].set_xlabel("bytes")
        for panel in column:
            panel.set_xscale("log", base=2)
            _style(panel)
    panels[0][0].set_ylabel("ns per operation (log)")
    panels[1][0].set_ylabel("GiB/s (log)")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, frameon=False, fontsize=9)
    figure.suptitle("Blocking puts and gets between two ranks of a node", fontsize=13, fontweight="bold")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    if drawn:
        _save(figure, path)
    return drawn


REMOTE_STYLES = {  # way -> colour, marker
    "firehose": (OURS, "o"), "rendezvous_unpin": (PEER, "s"), "rendezvous_keep": (OTHER, "^"),
    "bounce": ("#7a5ea8", "v"), "pin_everything": (FLOOR, "D")}


def firehose(tables_of_runs, path):
    """Latency and bandwidth by working set, a column per delay. False if there is nothing to draw."""
    if not tables_of_runs:
        return False
    table = tables_of_runs[-1]
    delays = sorted({cell["delay_us"] for cell in table["sweep"] if cell["pattern"] == "uniform"})
    figure, panels = plt.subplots(2, len(delays), figsize=(4.6 * len(delays), 8.2), sharex=True,
                                  squeeze=False)
    for column, delay in zip(panels.T, delays):
        for way, (colour, marker) in REMOTE_STYLES.items():
            for panel, size in zip(column, (8, 65536)):
                points = remote.series(table, size, delay, way)
                panel.plot([percent / 100 for percent, _ in points],
                           [ns / 1000 if size == 8 else gib_per_s(size, ns) for _, ns in points],
                           color=colour, marker=marker, markersize=4.5, label=remote.NAMES[way], zorder=3)
        column[0].set_title(f"{delay:g} µs to the other side")
        column[1].set_xlabel("working set / budget")
        for panel in column:
            panel.axvline(1.0, color="black", linestyle=(0, (4, 2)), linewidth=1)
            logarithmic = panel is column[0] and delay == 0
            _style(panel, minor=logarithmic)
            if not logarithmic:
                panel.set_ylim(bottom=0)
    panels[0][0].set_ylabel("µs per put of 8 bytes (log without delay)")
    panels[1][0].set_ylabel("GiB/s, puts of 64 KiB")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False, fontsize=9)
    figure.suptitle("Random puts into a peer's memory: firehose and rendezvous", fontsize=13,
                    fontweight="bold")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    _save(figure, path)
    return True


def _style(panel, minor=True):
    if minor:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}"))
    panel.grid(axis="y", which="major", color="#e2e2e2", zorder=0)
    panel.spines[["top", "right"]].set_visible(False)


def _save(figure, path, dpi=DPI):
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
