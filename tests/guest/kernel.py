#!/usr/bin/python3
"""The guest's kernel: Debian 12's, installed, or its package unpacked into a folder of this project.

As a program: `kernel.py --fetch FOLDER` downloads the package with apt and unpacks it there, unless a kernel
is installed or already in the folder. Needs no root, but the lists of apt-get update.
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
# The useful part of 400 MB of modules for a guest without devices.
WANTED = ["./boot/vmlinuz-*"] + [f"./lib/modules/*/kernel/{folder}/*" for folder in (
    "arch/x86/crypto", "crypto", "lib", "net", "fs/9p", "fs/fuse", "fs/overlayfs", "fs/netfs", "fs/fscache",
    "drivers/block", "drivers/char", "drivers/infiniband", "drivers/net", "drivers/virtio")]
DOWNLOAD_SECONDS = 300


class NoKernel(Exception):
    """No kernel was found; the text has the remedy."""


class Kernel:
    """A kernel with its modules; `root` is the folder with boot/ and lib/modules/."""

    def __init__(self, root, version):
        self.version = version
        self.image = root / "boot" / f"vmlinuz-{version}"
        self._files = {path.stem.replace("-", "_"): path
                       for path in (root / "lib/modules" / version / "kernel").rglob("*.ko")}

    def modules(self, names):
        """The files of these modules and their dependencies, dependencies first. Modules that are built into
        the kernel have no file: such names are skipped, and so are misspelt ones."""
        ordered = {}
        for name in names:
            self._add(name.replace("-", "_"), ordered)
        return list(ordered.values())

    def _add(self, name, ordered):
        path = self._files.get(name)
        if path is None or name in ordered:
            return
        # modules.dep is missing in the package (depmod makes it at installation), but each module lists its
        # own.
        needs = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for need in filter(None, (needs.group(1) if needs else b"").decode().split(",")):
            self._add(need.replace("-", "_"), ordered)
        ordered[name] = path

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


def version_key(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def find(*roots):
    """The newest kernel of the series under one of these; raises NoKernel."""
    found = []
    for root in map(pathlib.Path, roots):
        for folder in (root / "lib/modules").glob(SERIES + "*"):
            # Skips cloud kernels, which lack most modules, and realtime ones, which schedule differently.
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
        raise NoKernel(f"{META_PACKAGE} is not a kernel {SERIES}x here, or apt has no package lists")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run("apt-get", "download", package.group(1), cwd=scratch)
        (archive,) = pathlib.Path(scratch).glob("*.deb")
        unpacked = pathlib.Path(scratch) / "root"
        unpacked.mkdir()
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as tarred:
            run("tar", "-x", "-C", unpacked, "--no-same-owner", "--wildcards", *WANTED,
                stdin=tarred.stdout)
        # Moves the modules first: find() ignores a kernel without modules.
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
