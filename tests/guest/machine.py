"""One run of an emulated machine: started, listened to, and gone at its deadline at the latest.

Nothing is left behind, not even when this process is killed: the kernel kills QEMU when its parent dies, and
what QEMU reads and writes are descriptors, never files.
"""
import contextlib
import dataclasses
import os
import resource
import select
import subprocess
import time

QEMU = "qemu-system-x86_64"
# The ports by which /init gives out what the program writes, and its exit status.
OUTPUT_PORT, STATUS_PORT = "output", "status"
# nokaslr, mitigations=off, no watchdog: what costs time and tests nothing here. panic=-1: reboot, which
# ends QEMU. acpi_pm: QEMU derives it from this machine's clock. The processor's counter is calibrated at
# start, and on a busy machine that has gone wrong by a factor of ten, with every deadline in the guest.
KERNEL_LINE = ("console=ttyS0 quiet panic=-1 rdinit=/init nokaslr mitigations=off nowatchdog audit=0 "
               "random.trust_cpu=on clocksource=acpi_pm no_timer_check")


@dataclasses.dataclass
class End:
    """How a run ended; status is None if the guest has not said one."""
    status: int | None
    timed_out: bool
    console: str
    seconds: float
    processor_seconds: float


def run(kernel_image, initramfs, *, processors, memory, seconds, on_output):
    """Boots, and waits until the machine is off or the time over. on_output gets the program's bytes."""
    with contextlib.ExitStack() as stack:
        kernel_fd, initramfs_fd = (memory_file(stack, data) for data in (kernel_image, initramfs))
        console_fd, status_fd = memory_file(stack), memory_file(stack)
        paths = {fd: f"/proc/self/fd/{fd}" for fd in (kernel_fd, initramfs_fd, console_fd, status_fd)}
        command = [
            "setpriv", "--pdeathsig", "KILL", QEMU, "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-M", "q35,sata=off,smbus=off,usb=off,hpet=off", "-cpu", "max",
            # Emulated even where /dev/kvm is: timings unlike this machine's own are what a guest is for.
            "-accel", "tcg,thread=multi", "-smp", str(processors), "-m", memory,
            "-kernel", paths[kernel_fd], "-initrd", paths[initramfs_fd], "-append", KERNEL_LINE,
            "-chardev", f"file,id=console,path={paths[console_fd]},append=on", "-serial", "chardev:console",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            # By its path: QEMU takes a stdio without input for one that nobody listens to.
            "-chardev", "file,id=output,path=/proc/self/fd/1,append=on",
            "-device", f"virtserialport,chardev=output,name={OUTPUT_PORT}",
            "-chardev", f"file,id=status,path={paths[status_fd]},append=on",
            "-device", f"virtserialport,chardev=status,name={STATUS_PORT}"]
        started = time.monotonic()
        process = stack.enter_context(subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=console_fd,
            pass_fds=list(paths)))
        try:
            timed_out = not listen(process, started + seconds, on_output)
        finally:
            process.kill()
            process.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = contents(status_fd).strip()
        return End(int(status) if status.isdigit() else None, timed_out,
                   contents(console_fd).decode(errors="replace"), time.monotonic() - started,
                   used.ru_utime + used.ru_stime)


def listen(process, deadline, on_output):
    """Passes on what the process writes until it ends; False at the deadline."""
    pipe = process.stdout.fileno()
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        data = os.read(pipe, 65536)
        if not data:
            # It has closed its output, and so is ending.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(1, deadline - time.monotonic()))
                return True
            break
        on_output(data)
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
