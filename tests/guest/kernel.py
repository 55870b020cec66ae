#!/usr/bin/python3
"""The guest's kernel: Debian 12's, installed, or its package unpacked into a folder of the user. With
HYDRANT_TEST_KERNEL=FOLDER it is the newest one in that folder instead, of whatever series.

As a program: `kernel.py --fetch` downloads the package with apt and unpacks it, unless a kernel is installed
or already there. All clones share the folder hydrant/guest-kernel in the user's cache folder (XDG_CACHE_HOME
or ~/.cache); where that cannot be written, each clone has build/guest. `--fetch FOLDER` names another one.
Needs no root, but the lists of apt-get update.
"""
import argparse
import contextlib
import fcntl
import lzma
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

OTHER_FOLDER = os.environ.get("HYDRANT_TEST_KERNEL")
SERIES, ROOT = ("", []) if OTHER_FOLDER else ("6.1.", ["/"])
META_PACKAGE = "linux-image-amd64"
# Newer packages of kernels have no files, but need these.
PARTS = ("linux-binary-", "linux-modules-")
# The useful part of 400 MB of modules for a guest without devices.
WANTED = re.compile(r"(?:usr/)?(boot/vmlinuz-.*|lib/modules/[^/]*/(?:vmlinuz|kernel/(?:%s)/.*))" % "|".join((
    "arch/x86/crypto", "crypto", "lib", "net", "fs/9p", "fs/fuse", "fs/overlayfs", "fs/netfs", "fs/fscache",
    "drivers/block", "drivers/char", "drivers/infiniband", "drivers/net", "drivers/virtio")))
BUILD_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build" / "guest"
# A folder of the first name has a complete kernel, because the name is given last.
COMPLETE, UNFINISHED = "linux-image-*", ".unfinished-*"
TRIES, PAUSE_SECONDS = 3, 2
DOWNLOAD_SECONDS = 300  # for all tries together


class NoKernel(Exception):
    """No kernel was found; the text has the remedy."""


class Kernel:
    """A kernel with its modules; `root` is the folder with boot/ and lib/modules/."""

    def __init__(self, root, version):
        self.version = version
        self.image = image_path(root, version)
        self._files = {path.name.partition(".")[0].replace("-", "_"): path
                       for path in (root / "lib/modules" / version / "kernel").rglob("*.ko*")}

    def modules(self, names):
        """The contents of these modules and of what they depend on, by name, dependencies first. Modules that
        are built into the kernel have no file: such names are skipped, and so are misspelt ones."""
        ordered = {}
        for name in names:
            self._add(name.replace("-", "_"), ordered)
        return ordered

    def _add(self, name, ordered):
        path = self._files.get(name)
        if path is None or name in ordered:
            return
        module = path.read_bytes()
        if path.suffix == ".xz":
            module = lzma.decompress(module)
        # modules.dep is missing in the package (depmod makes it at installation), but each module lists its
        # own.
        needs = re.search(rb"\0depends=([^\0]*)\0", module)
        for need in filter(None, (needs.group(1) if needs else b"").decode().split(",")):
            self._add(need.replace("-", "_"), ordered)
        ordered[name] = module

    def unpacked_image(self):
        """The kernel as an ELF file, which QEMU enters directly: under emulation the kernel's own unpacking
        takes most of a start. Returns the image unchanged if it is packed differently."""
        image = self.image.read_bytes()
        sectors = image[0x1f1] or 4  # as the boot protocol has it: 0 means 4
        offset, length = struct.unpack_from("<II", image, 0x248)
        payload = image[(sectors + 1) * 512 + offset:][:length]
        if not payload.startswith(b"\xfd7zXZ\0"):
            return image
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)


def image_path(root, version):
    """The kernel itself; Linux 7's packages of Debian have it beside the modules."""
    places = root / "boot" / f"vmlinuz-{version}", root / "lib/modules" / version / "vmlinuz"
    return next((place for place in places if place.exists()), None)


def version_key(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def find(*roots):
    """The newest kernel of the series in one of these folders or fetched into one; raises NoKernel."""
    found = []
    for root in (place for root in map(pathlib.Path, roots) for place in (root, *root.glob(COMPLETE))):
        for folder in (root / "lib/modules").glob(SERIES + "*"):
            # Skips cloud kernels, which lack most modules, and realtime ones, which schedule differently.
            if re.fullmatch(r"[\d.-]+(\+deb\d+)?-amd64", folder.name) and image_path(root, folder.name):
                found.append((version_key(folder.name), root, folder.name))
    if not found:
        if OTHER_FOLDER:
            raise NoKernel(f"no kernel in {OTHER_FOLDER}: 'tests/guest/kernel.py --fetch' downloads one")
        raise NoKernel(f"no kernel {SERIES}x: 'tests/guest/kernel.py --fetch' downloads the package; or "
                       f"install {META_PACKAGE}")
    _, root, version = max(found)
    return Kernel(root, version)


def has_kernel(folder):
    with contextlib.suppress(NoKernel):
        return bool(find(folder))
    return False


def folders():
    """The folders of fetched kernels, in the order in which a fetch tries them."""
    if OTHER_FOLDER:
        return [pathlib.Path(OTHER_FOLDER)]
    cache, home = (pathlib.Path(os.environ.get(name, "")) for name in ("XDG_CACHE_HOME", "HOME"))
    if not cache.is_absolute():
        # A home that does not exist is not made: accounts of services have such ones.
        cache = home / ".cache" if home.is_absolute() and home.is_dir() else None
    return [cache / "hydrant" / "guest-kernel", BUILD_FOLDER] if cache else [BUILD_FOLDER]


def first_writable(candidates):
    """The first of these folders, made if need be, in which files can be created."""
    for folder in candidates[:-1]:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    candidates[-1].mkdir(parents=True, exist_ok=True)
    return candidates[-1]


def run(*command, seconds=DOWNLOAD_SECONDS, cwd=None, stdin=subprocess.DEVNULL):
    """The output of a command, which does not outlive this program; raises NoKernel if it fails."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(["setpriv", "--pdeathsig", "TERM", *command], cwd=cwd, stdin=stdin,
                              capture_output=True, text=True, check=False, timeout=max(1, seconds))
    except subprocess.TimeoutExpired as error:
        raise NoKernel(f"{' '.join(command)}: not done after {seconds:.0f} s") from error
    if done.returncode != 0:
        raise NoKernel(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextlib.contextmanager
def only_fetch(folder, deadline):
    """Waits until no other program fetches into this folder. The lock ends with the program that has it.
    Yields False where the file system has no locks, as some of networks."""
    with open(folder / ".lock", "w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_alone = True
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise NoKernel(f"another fetch into {folder} is not done in time") from error
            except OSError:
                is_alone = False
                break
            time.sleep(0.1)
        yield is_alone


def fetch(folder):
    """Downloads and unpacks the package that the distribution's meta package names; raises NoKernel. Returns
    at once if another program has done so meanwhile."""
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    folder.mkdir(parents=True, exist_ok=True)
    with only_fetch(folder, deadline) as is_alone:
        if has_kernel(folder):
            return
        for remainder in folder.glob(UNFINISHED) if is_alone else ():  # of programs that were killed
            shutil.rmtree(remainder, ignore_errors=True)
        packages = named_packages()
        for left in reversed(range(TRIES)):
            try:
                unpack(packages, folder, deadline)
                return
            except NoKernel as error:
                if left == 0 or time.monotonic() > deadline:
                    raise
                print(f"kernel.py: {error}; {left} more tries", file=sys.stderr, flush=True)
                time.sleep(PAUSE_SECONDS)


def named_packages():
    """The package of the kernel that the meta package names, and those that have the rest of it."""
    wanted = f"linux-image-{SERIES}"
    package = next((name for name in dependencies(META_PACKAGE) if name.startswith(wanted)), None)
    if package is None:
        raise NoKernel(f"{META_PACKAGE} is not a kernel {SERIES}x here, or apt has no package lists")
    return [package, *(name for name in dependencies(package) if name.startswith(PARTS))]


def dependencies(package):
    return re.findall(r"Depends: (\S+)", run("apt-cache", "depends", "--important", package))


def unpack(packages, folder, deadline):
    """Leaves the kernel of these packages in a folder with the name of the first, complete or not at all."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED.rstrip("*")) as scratch:
        run("apt-get", "download", *packages, cwd=scratch, seconds=deadline - time.monotonic())
        archives = list(pathlib.Path(scratch).glob("*.deb"))
        if len(archives) != len(packages):
            raise NoKernel(f"apt-get download {' '.join(packages)} left {len(archives)} packages")
        unpacked = pathlib.Path(scratch) / "root"
        for archive in archives:
            unpack_archive(archive, unpacked)
        if not has_kernel(unpacked):
            raise NoKernel(f"{archives[0].name} is not whole")
        try:
            unpacked.rename(folder / packages[0])
        except OSError:
            if has_kernel(folder):  # from a fetch at the same time
                return
            shutil.rmtree(folder / packages[0])  # a part of it has been deleted
            unpacked.rename(folder / packages[0])


def unpack_archive(archive, root):
    """Adds the files that are wanted to the folder `root`, in boot/ and lib/ of which they then are."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as files:
                for file in files:
                    wanted = WANTED.fullmatch(file.name.removeprefix("./"))
                    if wanted and file.isfile():
                        path = root / wanted.group(1)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(files.extractfile(file).read())
            process.stdout.read()  # the rest of the last block
        except tarfile.TarError as error:
            raise NoKernel(f"{archive.name} is not whole: {error}") from error
    if process.returncode != 0:
        raise NoKernel(f"{archive.name} is not whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fetch", metavar="FOLDER", nargs="?", type=pathlib.Path, default=argparse.SUPPRESS,
                        help="(default: the user's cache folder)")
    options = parser.parse_args()
    if not hasattr(options, "fetch"):
        parser.error("--fetch is missing")
    # An exception, so that what is unfinished is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    places = [options.fetch] if options.fetch else folders()
    try:
        try:
            kernel = find(*ROOT, *places)
        except NoKernel:
            fetch(first_writable(places))
            kernel = find(*ROOT, *places)
    except (NoKernel, OSError) as error:
        print(f"kernel.py: {error}", file=sys.stderr)
        return 1
    print(kernel.image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
