"""A run of one or two emulated machines: starts them, passes on their output, ends them at a deadline.
Machines that stop at their start, before their programs', are ended early and started once more.

It leaves no process or file behind, even if this process is killed: the kernel kills QEMU when its parent
dies, and QEMU reads and writes only descriptors, never files.
"""
import contextlib
import dataclasses
import enum
import functools
import os
import resource
import select
import socket
import subprocess
import time
import typing

import monitor

QEMU = "qemu-system-x86_64"
# The ports on which /init sends the program's output, after the mark, and lines: "started" just before the
# program's start, and its exit status.
OUTPUT_PORT, STATUS_PORT = "output", "status"
OUTPUT_MARK, STARTED = b"\0\0", b"started"
# nokaslr, mitigations=off, no watchdog: they cost time without testing anything here. panic=-1: reboot, which
# ends QEMU. acpi_pm: QEMU derives this clock from the host's. The processor's counter is calibrated at start,
# which on a busy machine has been wrong by a factor of ten, and with it every deadline in the guest.
KERNEL_LINE = ("console=ttyS0 panic=-1 rdinit=/init nokaslr mitigations=off nowatchdog audit=0 "
               "random.trust_cpu=on no_timer_check")


# Ethernet cards of each of two guests, in the order of their slots, eth0 first.
LINKS = 2
MOST_STARTS = 2
LOOK_SECONDS = 0.5


@dataclasses.dataclass
class End:
    """How a guest ended; status is None if it reported none, is_own if it was not ended from outside, and
    is_silent if the reason was its silence before its program's start. The console is that since the
    program's start, if it had started. There are registers if the guest had to be ended."""
    status: int | None
    is_own: bool
    is_silent: bool
    console: str
    registers: str


@dataclasses.dataclass
class Run:
    """The result of all guests; the first one's deadline applies. `starts`: how often they were started."""
    ends: list[End]
    why: "Why"
    starts: int
    seconds: float
    processor_seconds: float


class Why(enum.Enum):
    """The event that ended the guests."""
    END = "a guest's own end"
    DEADLINE = "the deadline"
    SILENCE = "a guest's silence before its program's start"


class Clock(typing.NamedTuple):
    options: list[str]
    source: str  # the kernel's clock source


# The base of the guest's clock. With instructions, one per ns, a figure is independent of the host's load and
# counts executed instructions, the kernel's included.
CLOCKS = {
    "time": Clock(["-accel", "tcg,thread=multi"], "acpi_pm"),
    "instructions": Clock(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"], "tsc"),
}


class Machine:
    """A guest, started at construction. `guest` is what its init gets as $guest; `links` are descriptors
    of datagram sockets, one for each Ethernet card, whose other ends are the other guest's."""

    def __init__(self, stack, kernel_fd, initramfs_fd, *, guest, links, processors, clock, memory, serial,
                 on_output):
        self._console_fd, self._status_fd = memory_file(stack), memory_file(stack)
        self._on_output = on_output
        self._mark = OUTPUT_MARK
        self._monitor, monitor_end = socket.socketpair()
        stack.callback(self._monitor.close)
        self._registers = ""
        paths = {fd: f"/proc/self/fd/{fd}"
                 for fd in (kernel_fd, initramfs_fd, self._console_fd, self._status_fd)}
        command = [
            "setpriv", "--pdeathsig", "KILL", QEMU, "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-M", "q35,sata=off,smbus=off,usb=off,hpet=off", "-cpu", "max",
            # Emulated even with /dev/kvm: a guest is meant to have other timings than the host. maxcpus is at
            # least two: for a machine with a single processor QEMU omits barriers and splits locked
            # instructions, although its devices run concurrently. Then a notification to a card can get lost,
            # and the card stops sending.
            *CLOCKS[clock].options,
            "-smp", "1" if clock == "instructions" else f"{processors},maxcpus={max(processors, 2)}",
            "-m", memory,
            "-kernel", paths[kernel_fd], "-initrd", paths[initramfs_fd],
            "-append", f"{KERNEL_LINE} clocksource={CLOCKS[clock].source} guest={guest}",
            "-chardev", f"file,id=console,path={paths[self._console_fd]},append=on",
            "-serial", "chardev:console",
            "-chardev", f"socket,id=monitor,fd={monitor_end.fileno()}",
            "-mon", "chardev=monitor,mode=control",
            "-device", "virtio-rng-pci", "-device", ",".join(["virtio-serial-pci", *serial]),
            # Opened by path: QEMU treats a stdio without input as closed.
            "-chardev", "file,id=output,path=/proc/self/fd/1,append=on",
            "-device", f"virtserialport,chardev=output,name={OUTPUT_PORT}",
            "-chardev", f"file,id=status,path={paths[self._status_fd]},append=on",
            "-device", f"virtserialport,chardev=status,name={STATUS_PORT}"]
        for card, fd in enumerate(links):
            command += ["-netdev", f"dgram,id=link{card},local.type=fd,local.str={fd}", "-device",
                        f"virtio-net-pci,netdev=link{card},romfile=,mac=52:54:00:00:{card:02x}:{guest:02x}"]
        with monitor_end:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._console_fd,
                pass_fds=[*paths, *links, monitor_end.fileno()])
        stack.callback(self._process.stdout.close)
        stack.callback(self.end)
        self.pipe = self._process.stdout.fileno()
        self.ended_itself = False
        self._has_started, self._console_before = False, 0
        self._heard, self._before, self._silent_seconds = 0, 0, 0.0
        self._looked = time.monotonic()

    def listen(self):
        """Passes on new output; False at its end, when the guest is ending."""
        data = os.read(self.pipe, 65536)
        if not data:
            return False
        self._heard += len(data)
        marked = min(len(self._mark), len(data))
        self._mark = self._mark[marked:]
        if data[marked:]:
            self._on_output(data[marked:])
        return True

    def silent_seconds(self):
        """For how long the guest has given no byte; 0 once its program has started. To be called at least
        every LOOK_SECONDS: a longer pause counts as this one, because QEMU may not have run either."""
        if self._has_started:
            return 0
        now, console = time.monotonic(), size(self._console_fd)
        heard = self._heard + console + size(self._status_fd)
        self._silent_seconds += min(now - self._looked, LOOK_SECONDS)
        self._looked = now
        if heard != self._before:
            self._before, self._silent_seconds = heard, 0
        if STARTED in contents(self._status_fd).split():
            self._has_started, self._console_before = True, console
        return self._silent_seconds

    def wait(self, seconds):
        """Waits until the guest is off; False if it is not in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(1, seconds))
            self.ended_itself = True
        return self.ended_itself

    def end(self):
        self._process.kill()
        self._process.wait()

    def ask_registers(self):
        if self._process.poll() is None:
            self._registers = monitor.registers(self._monitor)

    def how_it_ended(self, is_silent):
        lines = contents(self._status_fd).split()
        console = contents(self._console_fd)[self._console_before:].decode(errors="replace")
        return End(int(lines[-1]) if lines and lines[-1].isdigit() else None, self.ended_itself, is_silent,
                   console, self._registers)


def run(kernel_image, initramfs, *, seconds, silence, on_silence, **settings):
    """Boots the guests of `settings` (see run_once). If one is silent for `silence` seconds before its
    program has started, all are ended, on_silence gets their ends, and they are started once more, in what is
    left of `seconds`: with a new share this program could outlive the limit that ctest has for it."""
    begun = time.monotonic()
    settings.update(deadline=begun + seconds, silence=silence)
    with contextlib.ExitStack() as stack:
        kernel_fd, initramfs_fd = (memory_file(stack, data) for data in (kernel_image, initramfs))
        for starts in range(1, MOST_STARTS + 1):
            why, ends = run_once(kernel_fd, initramfs_fd, **settings)
            if why is not Why.SILENCE or starts == MOST_STARTS:
                break
            on_silence(ends)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Run(ends, why, starts, time.monotonic() - begun, used.ru_utime + used.ru_stime)


def run_once(kernel_fd, initramfs_fd, *, guests, may_end, processors, clock, memory, serial, deadline,
             silence, on_output):
    """Boots one guest, or two with Ethernet links between them, and waits until the first is off or the time
    is over; then ends the other one. If that one ends before, the first is ended, too, unless may_end.
    on_output gets a guest's number and its output. Returns the reason of the end, and each guest's."""
    with contextlib.ExitStack() as stack:
        links = [[] for _ in range(guests)]
        sockets = stack.enter_context(contextlib.ExitStack())
        if guests == 2:
            for _ in range(LINKS):
                # Frames are datagrams between two unnamed sockets, without files.
                for end, of_guest in zip(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), links):
                    sockets.enter_context(end)
                    of_guest.append(end.fileno())
        machines = [Machine(stack, kernel_fd, initramfs_fd, guest=guest, links=links[guest],
                            processors=processors, clock=clock, memory=memory, serial=serial,
                            on_output=functools.partial(on_output, guest))
                    for guest in range(guests)]
        # Closes the host's ends: otherwise, after one guest is off, the other one's cards would wait for room
        # in full sockets instead of dropping frames.
        sockets.close()
        why, silent = listen(machines, deadline, silence, may_end)
        for machine in machines:
            if why is not Why.END:
                machine.ask_registers()
        for machine in machines:
            machine.end()
        return why, [machine.how_it_ended(machine in silent) for machine in machines]


def listen(machines, deadline, silence, may_end):
    """Passes on the guests' output until the first ends, or one that must not end, or one is silent for too
    long, or the deadline. Returns the reason and the silent ones."""
    listened_to = {machine.pipe: machine for machine in machines}
    while (left := deadline - time.monotonic()) > 0:
        for pipe in select.select(list(listened_to), [], [], min(left, LOOK_SECONDS))[0]:
            machine = listened_to[pipe]
            if machine.listen():
                continue
            # The guest has closed its output, so it is ending.
            is_off = machine.wait(deadline - time.monotonic())
            if machine is machines[0] or not may_end:
                return Why.END if is_off else Why.DEADLINE, []
            del listened_to[pipe]
        silent = [machine for machine in listened_to.values() if machine.silent_seconds() > silence]
        if silent:
            return Why.SILENCE, silent
    return Why.DEADLINE, []


def memory_file(stack, data=b""):
    fd = os.memfd_create("guest")
    stack.callback(os.close, fd)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    return fd


def size(fd):
    return os.fstat(fd).st_size


def contents(fd):
    return os.pread(fd, size(fd), 0)
