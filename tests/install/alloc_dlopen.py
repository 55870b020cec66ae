#!/usr/bin/python3
"""alloc_dlopen.py LIBRARY BACKEND: loads libhydrant_alloc into Python, whose image was linked without it. The
allocator of its own must serve if there is no room for jemalloc, and BACKEND if room is made for it."""
import ctypes
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/launch"))
import over  # noqa: E402  (the path must be set first)

MIB = 1 << 20
ROOM = "glibc.rtld.optional_static_tls=8192"


def load(path):
    library = ctypes.CDLL(path)
    for name in ("hydrant_alloc", "hydrant_realloc", "hydrant_alloc_shared"):
        getattr(library, name).restype = ctypes.c_void_p
    library.hydrant_alloc.argtypes = [ctypes.c_size_t]
    library.hydrant_alloc_shared.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    library.hydrant_realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.hydrant_free.argtypes = [ctypes.c_void_p]
    library.hydrant_alloc_trim.restype = ctypes.c_size_t
    for name in ("hydrant_alloc_backend", "hydrant_alloc_backend_reason"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def use(path):
    """Uses the library as a program does; prints the allocator and why it was chosen."""
    library = load(path)
    pointers = [library.hydrant_alloc(size) for size in (1, 5000, 300_000, 8 * MIB)]
    pointers.append(library.hydrant_alloc_shared(64, 3 * MIB))
    for pointer in pointers:
        assert pointer, "no memory"
        ctypes.memset(pointer, 0x5A, 1)
    pointers[1] = library.hydrant_realloc(pointers[1], 12 * MIB)
    assert ctypes.string_at(pointers[1], 1) == b"\x5a", "realloc lost something"
    for pointer in pointers:
        library.hydrant_free(pointer)
    library.hydrant_alloc_trim()
    print(library.hydrant_alloc_backend().decode(), library.hydrant_alloc_backend_reason().decode())


def used_with(path, tunables):
    environment = {**os.environ, "GLIBC_TUNABLES": tunables}
    run = subprocess.run([sys.executable, __file__, path], env=environment, text=True,
                         timeout=60 * over.PATIENCE, stdout=subprocess.PIPE)
    if run.returncode != 0:
        sys.exit(f"with GLIBC_TUNABLES={tunables!r}: exit status {run.returncode}")
    print(f"{tunables or 'plain'}: {run.stdout.strip()}")
    return run.stdout.split(maxsplit=1)


def main():
    if len(sys.argv) == 2:
        use(sys.argv[1])
        return
    path, backend = sys.argv[1:]
    found, reason = used_with(path, "")
    if found != "extents" or backend == "jemalloc" and "static TLS" not in reason:
        sys.exit("not the allocator of its own, or not for want of room")
    found, reason = used_with(path, ROOM)
    if found != backend:
        sys.exit(f"with room for it: not {backend}")
    print("alloc_dlopen.py: done")


if __name__ == "__main__":
    main()
