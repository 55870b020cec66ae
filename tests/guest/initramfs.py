"""The guest's root file system: an archive in memory ("newc") with files at the same paths as on the host."""
import importlib.util
import marshal
import os
import pathlib
import re
import stat
import subprocess
import sys

# Modules that tests import; their dependencies are added.
PYTHON_MODULES = ("ctypes.util", "encodings.ascii", "encodings.latin_1", "json", "pathlib", "random", "re",
                  "resource", "shutil", "signal", "site", "subprocess", "tempfile", "time", "unittest.main",
                  "uuid")


class Initramfs:
    """Collects files; bytes() is the archive. All files belong to root and are world-readable."""

    def __init__(self):
        self._parts = []
        self._names = set()
        self._inode = 0

    def add_program(self, path):
        """Adds a file under its absolute path, with its libraries if it is a program or library. Symbolic
        links are followed: the target is stored under the link's name."""
        path = pathlib.Path(os.path.abspath(path))
        self.add(path, path.read_bytes(), executable=os.access(path, os.X_OK))
        for library in libraries_of(path):
            self.add(library, pathlib.Path(library).read_bytes(), executable=True)

    def add_python(self):
        """Adds this interpreter, also as /usr/bin/python3, and the library modules that tests need. They are
        compiled here, because compiling in the guest takes seconds."""
        interpreter = os.path.realpath(sys.executable)
        self.add_program(interpreter)
        self.add_link("/usr/bin/python3", interpreter)
        for name, path in python_files(interpreter):
            if path.endswith(".py"):
                self.add(path, pathlib.Path(path).read_bytes())
                self.add(importlib.util.cache_from_source(path), compiled(name, path))
            else:
                self.add_program(path)

    def add(self, path, data=b"", executable=False):
        self._add_parents(path)
        self._put(path, stat.S_IFREG | (0o755 if executable else 0o644), data)

    def add_folder(self, path):
        self._add_parents(path)
        self._put(path, stat.S_IFDIR | 0o755)

    def add_link(self, path, target):
        self._add_parents(path)
        self._put(path, stat.S_IFLNK | 0o777, target.encode())

    def bytes(self):
        return b"".join(self._parts) + self._entry("TRAILER!!!", 0, b"")

    def _add_parents(self, path):
        for parent in reversed(pathlib.PurePosixPath(path).parents[:-1]):
            self._put(parent, stat.S_IFDIR | 0o755)

    def _put(self, path, mode, data=b""):
        name = str(path).lstrip("/")
        if name not in self._names:
            self._names.add(name)
            self._parts.append(self._entry(name, mode, data))

    def _entry(self, name, mode, data):
        self._inode += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, time, size, device, device of a node, length of the name, checksum
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
        return padded(header) + padded(data)


def padded(data):
    return data + b"\0" * (-len(data) % 4)


def python_files(interpreter):
    """(name, file) of each module of the interpreter's library that PYTHON_MODULES need."""
    program = (f"import sys, {', '.join(PYTHON_MODULES)}\n"
               "for name, module in sys.modules.items():\n"
               "    spec, file = (getattr(module, it, None) for it in ('__spec__', '__file__'))\n"
               "    if file: print(spec.name if spec else name, file)\n")
    listed = subprocess.run([interpreter, "-I", "-c", program], capture_output=True, text=True, check=True)
    # Keyed by file name, because a module may have two names (os.path is posixpath).
    return sorted({path: (name, path) for name, path in map(str.split, listed.stdout.splitlines())}.values())


def compiled(name, path):
    """The contents of a .pyc that is never compared with its source."""
    code = importlib.util.spec_from_file_location(name, path).loader.get_code(name)
    unchecked = 1
    return importlib.util.MAGIC_NUMBER + unchecked.to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


def libraries_of(path):
    """Absolute paths of the libraries of a program or library, with its loader; empty for other files."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    missing = re.findall(r"(\S+) => not found", listed.stdout)
    if missing:
        raise FileNotFoundError(f"{path} needs {', '.join(missing)}")
    return re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", listed.stdout, re.MULTILINE)
