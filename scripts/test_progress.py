#!/usr/bin/python3
"""test_progress.py TEXT LOG: follows a log of ninja ("[7/90] ...") or ctest ("7/90 Test ...") and prints how
many of how many are done and about how long the rest takes, until it is ended. On a terminal one line that
changes, else a line for each tenth.
"""
import pathlib
import re
import signal
import sys
import time

STEP = re.compile(r"^(?:\[| *)(\d+)/(\d+)(?:\]| Test)", re.MULTILINE)
TAIL_BYTES = 4096
PAUSE_SECONDS = 1


def last_step(text):
    """(done, all) of the last line that says so, or None."""
    steps = STEP.findall(text)
    return tuple(map(int, steps[-1])) if steps else None


def time_text(seconds):
    return f"{round(seconds)} s" if seconds < 90 else f"{round(seconds / 60)} min"


def describe(text, done, total, elapsed):
    left = elapsed / done * (total - done) if done else 0
    return f"{text}: {done} of {total}, {time_text(elapsed)}" + (f", about {time_text(left)} left" if left else "")


def read_tail(log):
    try:
        with open(log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def main():
    text, log = sys.argv[1], pathlib.Path(sys.argv[2])
    on_terminal = sys.stdout.isatty()
    started, tenth, width = time.monotonic(), 0, 0

    def end(*_):
        if width:
            print("\r" + " " * width + "\r", end="", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        time.sleep(PAUSE_SECONDS)
        step = last_step(read_tail(log))
        if step is None:
            continue
        line = describe(text, *step, time.monotonic() - started)
        if on_terminal:
            print("\r" + line.ljust(width), end="", flush=True)
            width = max(width, len(line))
        elif step[0] * 10 // step[1] > tenth:
            tenth = step[0] * 10 // step[1]
            print(line, flush=True)


if __name__ == "__main__":
    main()
