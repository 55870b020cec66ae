"""QEMU's monitor (QMP) over a socket: shows where a guest's processors are."""
import json
import time

ANSWER_SECONDS = 3
# The dump of a processor goes on with segments, control, floating-point and vector registers.
END_OF_GENERAL = ("ES =", "FCW=")


def registers(connection):
    """The general registers of all processors, and their positions a second later: it shows whether they
    moved. If the monitor does not answer in time, the text says so."""
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        tell(connection, {"execute": "qmp_capabilities"})
        first = ask(connection, "info registers -a", deadline)
        time.sleep(1)
        second = ask(connection, "info registers -a", deadline)
    except (OSError, EOFError, ValueError) as error:
        return f"(QEMU's monitor gave no answer within {ANSWER_SECONDS} s: {error or type(error).__name__})"
    return "\n".join([*general(first), "a second later:", *positions(second)])


def general(text):
    """The lines of a dump without those of other than general registers."""
    is_general = True
    for line in text.splitlines():
        if line.startswith("CPU#"):
            is_general = True
        elif line.startswith(END_OF_GENERAL):
            is_general = False
        if is_general and line.strip():
            yield line


def positions(text):
    return [line for line in general(text) if line.startswith(("CPU#", "RIP=", "EIP="))]


def tell(connection, command):
    connection.sendall(json.dumps(command).encode() + b"\n")


def ask(connection, command, deadline):
    """The answer of the monitor for people to one of its commands."""
    number = time.monotonic_ns()
    tell(connection, {"execute": "human-monitor-command", "arguments": {"command-line": command},
                      "id": number})
    begun = b""
    while True:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        data = connection.recv(65536)
        if not data:
            raise EOFError("it is closed")
        *lines, begun = (begun + data).split(b"\n")
        for answer in map(json.loads, filter(bytes.strip, lines)):
            if answer.get("id") == number:
                return str(answer.get("return", answer.get("error")))
