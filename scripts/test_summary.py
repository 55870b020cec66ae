#!/usr/bin/python3
"""test_summary.py REPORT LOGS: summarises the results of ./test: REPORT/<step>.xml (JUnit, from ctest) or
REPORT/<step>.broken (a reason) for each step; REPORT/<step>.system says where it ran, if not on this system.

Prints failures with their output, skips with their reasons, the sums of sizes that tests print ("size of NAME: 3 KIND,
5 KIND"), the counts of each step if there are several, and a last line `N passed, N failed, N skipped`.
Exit status 1 if a test failed or no test ran. A skip without a reason counts as a failure.
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES = 40
# "3/9 Test #7: name ....***Timeout  60.01 sec": the result of a test, which the JUnit file omits.
ENDED = re.compile(r"Test +#\d+: (\S+) \.*(.*?) +[\d.]+ sec")


def skip_reason(output):
    """The message of GTEST_SKIP() or of unittest, or else the last line that a script printed."""
    match = re.search(r": Skipped\n(.*?)\n*^\[ ", output, re.MULTILINE | re.DOTALL)
    if match:
        return " ".join(match.group(1).split())
    reasons = re.findall(r"\.\.\. skipped (['\"])(.*)\1$", output, re.MULTILINE)
    if reasons:
        return "; ".join(dict.fromkeys(reason for _, reason in reasons))
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "" if not lines or lines[-1].startswith("[ ") else lines[-1]


def add_sizes(output, sizes):
    """Adds the numbers of lines such as "size of the matrix: 3 cells, 5 calls right" to {name: Counter}."""
    for name, numbers in re.findall(r"^size of ([\w ]+): (\d.*)$", output, re.MULTILINE):
        for number, kind in re.findall(r"(\d+) ([^,]+)", numbers):
            sizes.setdefault(name, collections.Counter())[kind] += int(number)


def read_case(case, ended):
    """A <testcase> as (verdict, text); `ended` is ctest's description of a failure."""
    output = case.findtext("system-out") or ""
    if case.get("status") == "run":
        return "passed", ""
    skipped = case.find("skipped")
    if skipped is not None:
        why = skipped.get("message") or ""
        if not why.startswith("SKIP_"):
            return "failed", f"did not run: {why or case.get('status')}\n{output}"
        reason = skip_reason(output)
        return ("skipped", reason) if reason else ("failed", "skipped without a reason\n" + output)
    return "failed", f"{output.rstrip()}\n({ended})"


def read_report(report, logs, sizes):
    """All results as (preset, name, verdict, text); the sizes that tests print are added to `sizes`."""
    for path in sorted(report.glob("*.broken")):
        yield path.stem, "(all)", "failed", path.read_text().strip()
    for path in sorted(report.glob("*.xml")):
        ends = dict(ENDED.findall((logs / f"{path.stem}.test.log").read_text(errors="replace")))
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = case.get("name")
            add_sizes(case.findtext("system-out") or "", sizes)
            yield (path.stem, name, *read_case(case, ends.get(name, "failed").strip("*: ")))


def counts_text(counts):
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("passed", "failed", "skipped"))


def print_steps(report, results):
    steps = {}
    for step, _, verdict, _ in results:
        steps.setdefault(step, collections.Counter())[verdict] += 1
    for step, counts in steps.items() if len(steps) > 1 else ():
        system = report / f"{step}.system"
        where = f" ({system.read_text().strip()})" if system.exists() else ""
        print(f"{step}{where}: {counts_text(counts)}")


def main():
    report, logs = map(pathlib.Path, sys.argv[1:3])
    sizes = {}
    results = list(read_report(report, logs, sizes))
    counts = collections.Counter(verdict for _, _, verdict, _ in results)
    for preset, name, verdict, text in results:
        if verdict == "failed":
            lines = text.strip().splitlines()
            print(f"\nFAILED  {preset}: {name}")
            if len(lines) > OUTPUT_LINES:
                print(f"    ({len(lines) - OUTPUT_LINES} lines before: {logs}/{preset}.test.log)")
            for line in lines[-OUTPUT_LINES:]:
                print("    " + line)
    if not results:
        print("\nNo test ran.")
    print()
    for preset, name, verdict, text in results:
        if verdict == "skipped":
            print(f"SKIPPED {preset}: {name}: {text}")
    for name, numbers in sizes.items():
        print(f"{name}: " + ", ".join(f"{number} {kind}" for kind, number in numbers.items()))
    print_steps(report, results)
    print(counts_text(counts))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
