#!/usr/bin/python3
"""test_progress.py TEXT LOG [AGAIN]: follows a log of ninja ("[7/90] ...") or ctest ("7/90 Test ...") until it is
ended. Prints how many of how many are done and about how long the rest takes, on a terminal in one line that
changes, else for each tenth. Failed tests are printed at once with their output and, with AGAIN, the command
that runs them again (AGAIN and the test's name). Tests that have been running for 30 s are named.

test_progress.py --running LOG: prints the tests that a log of ctest shows as started and not ended.
"""
import pathlib
import re
import shlex
import signal
import sys
import time

STEP = re.compile(r"^(?:\[| *)(\d+)/(\d+)(?:\]| Test)")
START = re.compile(r"^ *Start +\d+: (\S+)")
RESULT = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*(.*?) +([\d.]+) sec")
PAUSE_SECONDS = 1
SLOW_SECONDS = 30
OUTPUT_LINES = 40


def time_text(seconds):
    return f"{round(seconds)} s" if seconds < 90 else f"{round(seconds / 60)} min"


def describe(text, done, total, elapsed):
    left = elapsed / done * (total - done) if done else 0
    return f"{text}: {done} of {total}, {time_text(elapsed)}" + (f", about {time_text(left)} left" if left else "")


class Follower:
    """Reads the lines of a log as they come and keeps what is known from them."""

    def __init__(self, again, show, now=time.monotonic):
        self.step = None  # (done, all)
        self._again, self._show, self._now = again, show, now
        self._running = {}  # name: [when it started, seconds at which it is named next]
        self._failed = None  # (name, how it ended, the lines of its output so far)

    def running(self):
        return list(self._running)

    def take(self, line):
        if match := STEP.match(line):
            self.step = (int(match.group(1)), int(match.group(2)))
        if match := START.match(line):
            self.flush()
            self._running[match.group(1)] = [self._now(), SLOW_SECONDS]
        elif match := RESULT.match(line):
            self.flush()
            name, result, _ = match.groups()
            self._running.pop(name, None)
            if "***" in result and "Skipped" not in result:
                self._failed = (name, result.strip("* "), [])
        elif self._failed:
            self._failed[2].append(line)

    def flush(self):
        """Shows the failure whose output is complete."""
        if self._failed is None:
            return
        name, result, output = self._failed
        self._failed = None
        lines = "\n".join(output).strip().splitlines()
        text = [f"FAILED  {name} ({result})", *("    " + line for line in lines[-OUTPUT_LINES:])]
        if len(lines) > OUTPUT_LINES:
            text.insert(1, f"    (the last {OUTPUT_LINES} of {len(lines)} lines)")
        if self._again:
            text.append(f"  again: {self._again} {shlex.quote('^' + re.escape(name) + '$')}")
        self._show("\n".join(text))

    def name_slow(self):
        for name, entry in self._running.items():
            elapsed = self._now() - entry[0]
            if elapsed >= entry[1]:
                entry[1] *= 2
                self._show(f"running for {time_text(elapsed)}: {name}")


class Screen:
    """Prints lines, and on a terminal a last line that is replaced."""

    def __init__(self):
        self._on_terminal = sys.stdout.isatty()
        self._width, self._tenth = 0, 0

    def show(self, text):
        self.clear()
        print(text, flush=True)

    def clear(self):
        if self._width:
            print("\r" + " " * self._width + "\r", end="", flush=True)
            self._width = 0

    def show_step(self, step, line):
        if self._on_terminal:
            self._width = max(self._width, len(line))
            print("\r" + line.ljust(self._width), end="", flush=True)
        elif step[0] * 10 // step[1] > self._tenth:
            self._tenth = step[0] * 10 // step[1]
            print(line, flush=True)


def new_lines(file, rest):
    """(the complete lines that have come, the incomplete one)"""
    *lines, rest = (rest + file.read()).split("\n")
    return lines, rest


def follow(text, log, again):
    screen = Screen()
    follower = Follower(again, screen.show)
    started, rest, ending = time.monotonic(), "", []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    log.touch()
    with open(log, errors="replace") as file:
        while True:
            is_last = bool(ending)
            lines, rest = new_lines(file, rest)
            for line in lines:
                follower.take(line)
            if is_last:
                break
            follower.name_slow()
            if follower.step:
                screen.show_step(follower.step, describe(text, *follower.step, time.monotonic() - started))
            time.sleep(PAUSE_SECONDS)
    follower.flush()
    screen.clear()


def main():
    if sys.argv[1] == "--running":
        follower = Follower("", lambda text: None)
        for line in pathlib.Path(sys.argv[2]).read_text(errors="replace").splitlines():
            follower.take(line)
        print(" ".join(follower.running()))
        return
    follow(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")


if __name__ == "__main__":
    main()
