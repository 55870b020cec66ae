#!/usr/bin/python3
"""The guest's kernel: Debian 12's, where it is installed, or its package unpacked into a folder of ours.

As a program: `kernel.py --fetch FOLDER` downloads the package with apt and unpacks it there, unless a kernel
is installed or lies there already. Needs no root; the lists that apt-get update makes must be there.
"""
import argparse
import lzma
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

SERIES = "6.1."
META_PACKAGE = "linux-image-amd64"
# Of 400 MB of modules, what a guest without devices can have a use for.
WANTED = ["./boot/vmlinuz-*"] + [f"./lib/modules/*/kernel/{folder}/*" for folder in (
    "arch/x86/crypto", "crypto", "lib", "net", "fs/9p", "fs/fuse", "fs/overlayfs", "fs/netfs", "fs/fscache",
    "drivers/block", "drivers/char", "drivers/infiniband", "drivers/net", "drivers/virtio")]
DOWNLOAD_SECONDS = 300


class NoKernel(Exception):
    """There is none; the text says what to do."""


class Kernel:
    """One kernel with its modules; `root` is the folder that holds boot/ and lib/modules/."""

    def __init__(self, root, version):
        self.version = version
        self.image = root / "boot" / f"vmlinuz-{version}"
        self._files = {path.stem.replace("-", "_"): path
                       for path in (root / "lib/modules" / version / "kernel").rglob("*.ko")}

    def modules(self, names):
        """The files of these modules and of all that they need, each after what it needs. What is built
        into the kernel has no file: such a name is passed over, and so is one that is misspelt."""
        ordered = {}
        for name in names:
            self._add(name.replace("-", "_"), ordered)
        return list(ordered.values())

    def _add(self, name, ordered):
        path = self._files.get(name)
        if path is None or name in ordered:
            return
        # The package has no modules.dep, which depmod makes at installation; but each module says itself.
        needs = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for need in filter(None, (needs.group(1) if needs else b"").decode().split(",")):
            self._add(need.replace("-", "_"), ordered)
        ordered[name] = path

    def unpacked_image(self):
        """The kernel as an ELF file, which QEMU enters directly: where processors are emulated, the kernel's
        unpacking of itself is the longest part of a start. The image as it is if it is not packed so."""
        image = self.image.read_bytes()
        sectors = image[0x1f1] or 4  # as the boot protocol has it: 0 means 4
        offset, length = struct.unpack_from("<II", image, 0x248)
        payload = image[(sectors + 1) * 512 + offset:][:length]
        if not payload.startswith(b"\xfd7zXZ\0"):
            return image
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)


def version_key(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def find(*roots):
    """The newest kernel of the series under one of these; raises NoKernel."""
    found = []
    for root in map(pathlib.Path, roots):
        for folder in (root / "lib/modules").glob(SERIES + "*"):
            # Cloud kernels lack most modules, realtime ones schedule differently.
            image = root / "boot" / f"vmlinuz-{folder.name}"
            if re.fullmatch(r"[\d.-]+-amd64", folder.name) and image.exists():
                found.append((version_key(folder.name), root, folder.name))
    if not found:
        raise NoKernel(f"no kernel {SERIES}x: 'tests/guest/kernel.py --fetch {roots[-1]}' downloads "
                       f"the package; or install {META_PACKAGE}")
    _, root, version = max(found)
    return Kernel(root, version)


def run(*command, cwd=None, stdin=subprocess.DEVNULL):
    """The output of a command; raises NoKernel if it fails."""
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=cwd, stdin=stdin, capture_output=True, text=True, check=False,
                          timeout=DOWNLOAD_SECONDS)
    if done.returncode != 0:
        raise NoKernel(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def fetch(folder):
    """Downloads and unpacks the package that the distribution's meta package names; raises NoKernel."""
    depends = run("apt-cache", "depends", "--important", META_PACKAGE)
    package = re.search(r"Depends: (linux-image-" + re.escape(SERIES) + r"\S+)", depends)
    if package is None:
        raise NoKernel(f"{META_PACKAGE} is no kernel {SERIES}x here, or apt has no lists of packages")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run("apt-get", "download", package.group(1), cwd=scratch)
        (archive,) = pathlib.Path(scratch).glob("*.deb")
        unpacked = pathlib.Path(scratch) / "root"
        unpacked.mkdir()
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as tarred:
            run("tar", "-x", "-C", unpacked, "--no-same-owner", "--wildcards", *WANTED,
                stdin=tarred.stdout)
        # Modules first: a kernel without them is not taken for one.
        for part in ("lib", "boot"):
            (unpacked / part).rename(folder / part)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fetch", metavar="FOLDER", type=pathlib.Path, required=True)
    folder = parser.parse_args().fetch
    try:
        try:
            kernel = find("/", folder)
        except NoKernel:
            fetch(folder)
            kernel = find("/", folder)
    except (NoKernel, OSError, subprocess.TimeoutExpired) as error:
        print(f"kernel.py: {error}", file=sys.stderr)
        return 1
    print(kernel.image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
