"""One run of an emulated machine, or of two: started, listened to, and gone at its deadline at the latest.

Nothing is left behind, not even when this process is killed: the kernel kills QEMU when its parent dies, and
what QEMU reads and writes are descriptors, never files.
"""
import contextlib
import dataclasses
import functools
import os
import resource
import select
import socket
import subprocess
import time
import typing

QEMU = "qemu-system-x86_64"
# The ports by which /init gives out what the program writes, and its exit status.
OUTPUT_PORT, STATUS_PORT = "output", "status"
# nokaslr, mitigations=off, no watchdog: what costs time and tests nothing here. panic=-1: reboot, which
# ends QEMU. acpi_pm: QEMU derives it from this machine's clock. The processor's counter is calibrated at
# start, and on a busy machine that has gone wrong by a factor of ten, with every deadline in the guest.
KERNEL_LINE = ("console=ttyS0 quiet panic=-1 rdinit=/init nokaslr mitigations=off nowatchdog audit=0 "
               "random.trust_cpu=on no_timer_check")


# What a guest has for cards where there are two: their order is that of the slots, eth0 first.
LINKS = 2


@dataclasses.dataclass
class End:
    """How a guest ended; status is None if it has not said one, is_own if nobody ended it from outside."""
    status: int | None
    is_own: bool
    console: str


@dataclasses.dataclass
class Run:
    """Of all guests; the deadline was that of the first."""
    ends: list[End]
    timed_out: bool
    seconds: float
    processor_seconds: float


class Clock(typing.NamedTuple):
    options: list[str]
    source: str  # what the kernel reads


# What the guest's clock goes by. By instructions, one for each ns: a figure is the same however busy this
# machine is, and says what was executed, the kernel's part included.
CLOCKS = {
    "time": Clock(["-accel", "tcg,thread=multi"], "acpi_pm"),
    "instructions": Clock(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"], "tsc"),
}


class Machine:
    """One guest, which runs from the start. `guest` is what its init gets as $guest; `links` are descriptors
    of datagram sockets, one for each Ethernet card, whose other ends are the other guest's."""

    def __init__(self, stack, kernel_fd, initramfs_fd, *, guest, links, processors, clock, memory, on_output):
        self._console_fd, self._status_fd = memory_file(stack), memory_file(stack)
        self._on_output = on_output
        paths = {fd: f"/proc/self/fd/{fd}"
                 for fd in (kernel_fd, initramfs_fd, self._console_fd, self._status_fd)}
        command = [
            "setpriv", "--pdeathsig", "KILL", QEMU, "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-M", "q35,sata=off,smbus=off,usb=off,hpet=off", "-cpu", "max",
            # Emulated even where /dev/kvm is: timings unlike this machine's own are what a guest is for.
            # Room for a second processor: of a machine that can have only one QEMU leaves out barriers, cuts
            # locked instructions into steps, though its devices run beside the processor: a notice to a
            # card can get lost, and then the card sends no more.
            *CLOCKS[clock].options,
            "-smp", "1" if clock == "instructions" else f"{processors},maxcpus={max(processors, 2)}",
            "-m", memory,
            "-kernel", paths[kernel_fd], "-initrd", paths[initramfs_fd],
            "-append", f"{KERNEL_LINE} clocksource={CLOCKS[clock].source} guest={guest}",
            "-chardev", f"file,id=console,path={paths[self._console_fd]},append=on",
            "-serial", "chardev:console",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            # By its path: QEMU takes a stdio without input for one that nobody listens to.
            "-chardev", "file,id=output,path=/proc/self/fd/1,append=on",
            "-device", f"virtserialport,chardev=output,name={OUTPUT_PORT}",
            "-chardev", f"file,id=status,path={paths[self._status_fd]},append=on",
            "-device", f"virtserialport,chardev=status,name={STATUS_PORT}"]
        for card, fd in enumerate(links):
            command += ["-netdev", f"dgram,id=link{card},local.type=fd,local.str={fd}", "-device",
                        f"virtio-net-pci,netdev=link{card},romfile=,mac=52:54:00:00:{card:02x}:{guest:02x}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._console_fd,
            pass_fds=[*paths, *links])
        stack.callback(self._process.stdout.close)
        stack.callback(self.end)
        self.pipe = self._process.stdout.fileno()
        self.ended_itself = False

    def listen(self):
        """Passes on what has come; False if there is nothing more to come, because it is ending."""
        data = os.read(self.pipe, 65536)
        if data:
            self._on_output(data)
        return bool(data)

    def wait(self, seconds):
        """Until it is off; False if it is not by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(1, seconds))
            self.ended_itself = True
        return self.ended_itself

    def end(self):
        self._process.kill()
        self._process.wait()

    def how_it_ended(self):
        status = contents(self._status_fd).strip()
        return End(int(status) if status.isdigit() else None, self.ended_itself,
                   contents(self._console_fd).decode(errors="replace"))


def run(kernel_image, initramfs, *, guests, may_end, processors, clock, memory, seconds, on_output):
    """Boots one guest, or two with Ethernet links between them, and waits until the first is off or the time
    over; then the other one is ended. If that one is off before, so is the first, unless it may end.
    on_output gets a guest's number and bytes that it has written."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        kernel_fd, initramfs_fd = (memory_file(stack, data) for data in (kernel_image, initramfs))
        links = [[] for _ in range(guests)]
        sockets = stack.enter_context(contextlib.ExitStack())
        if guests == 2:
            for _ in range(LINKS):
                # Frames are datagrams between two sockets without a name: nothing is in the file system.
                for end, of_guest in zip(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), links):
                    sockets.enter_context(end)
                    of_guest.append(end.fileno())
        machines = [Machine(stack, kernel_fd, initramfs_fd, guest=guest, links=links[guest],
                            processors=processors, clock=clock, memory=memory,
                            on_output=functools.partial(on_output, guest))
                    for guest in range(guests)]
        # Once a guest is off nobody may hold its ends: they would fill up, and the other one's cards would
        # wait for room instead of losing what they send.
        sockets.close()
        timed_out = not listen(machines, started + seconds, may_end)
        for machine in machines:
            machine.end()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Run([machine.how_it_ended() for machine in machines], timed_out,
                   time.monotonic() - started, used.ru_utime + used.ru_stime)


def listen(machines, deadline, may_end):
    """Passes on what they write until the first is off, or one that must not; False at the deadline."""
    listened_to = {machine.pipe: machine for machine in machines}
    while (left := deadline - time.monotonic()) > 0:
        for pipe in select.select(list(listened_to), [], [], left)[0]:
            machine = listened_to[pipe]
            if machine.listen():
                continue
            # It has closed its output, and so is ending.
            is_off = machine.wait(deadline - time.monotonic())
            if machine is machines[0] or not may_end:
                return is_off
            del listened_to[pipe]
    return False


def memory_file(stack, data=b""):
    fd = os.memfd_create("guest")
    stack.callback(os.close, fd)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    return fd


def contents(fd):
    return os.pread(fd, os.fstat(fd).st_size, 0)
