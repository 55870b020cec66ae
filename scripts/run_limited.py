#!/usr/bin/python3
"""run_limited.py SECONDS COMMAND...: runs COMMAND in a process group of its own and exits with its status. Ends the
group after SECONDS (0: never), with status 124, and at SIGTERM, with status 143: by SIGTERM, and by SIGKILL 20 s
later.

timeout(1) leaves the command running if SIGTERM comes between its fork and the return of that call; here signals
are blocked except in the wait.
"""
import os
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 20
NEVER_SECONDS = 1e8
WAITED_FOR = {signal.SIGTERM, signal.SIGCHLD}


def wait(process, seconds):
    """The signal that ended the wait: SIGCHLD once PROCESS has ended, SIGTERM, None after SECONDS."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        taken = signal.sigtimedwait(WAITED_FOR, max(0, deadline - time.monotonic()))
        if taken is None or taken.si_signo == signal.SIGTERM:
            return taken and signal.SIGTERM
    return signal.SIGCHLD


def end(process):
    """Ends the group of PROCESS."""
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while wait(process, deadline - time.monotonic()) == signal.SIGTERM:
        pass
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)

    def start():
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what it does not wait for with SIGINT ignored
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        process = subprocess.Popen(command, preexec_fn=start)
    except OSError as error:
        sys.exit(f"run_limited.py: cannot run {command[0]}: {error.strerror}")
    ended = wait(process, seconds or NEVER_SECONDS)
    if ended == signal.SIGCHLD:
        status = process.returncode
        return status if status >= 0 else 128 - status
    end(process)
    return 143 if ended == signal.SIGTERM else 124


if __name__ == "__main__":
    sys.exit(main())
