#!/usr/bin/python3
"""dlopen_client.py LIBRARY: loads libfirehose into Python, whose image was linked without it, and uses
it with a registrar written in Python."""
import ctypes
import sys
import threading

LOCAL_WRITE = 1
PAGE = 4096

PIN_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
                          ctypes.c_uint32, ctypes.c_void_p)
UNPIN_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
                            ctypes.c_void_p)


class Registrar(ctypes.Structure):
    """hydrant_registrar_t; the optional functions are not used here."""
    _fields_ = [
        ("size", ctypes.c_size_t), ("user", ctypes.c_void_p), ("name", ctypes.c_char_p),
        ("key_bytes", ctypes.c_uint32), ("address_kind", ctypes.c_uint32),
        ("charge_scope", ctypes.c_uint32), ("supported_access", ctypes.c_uint32),
        ("granule_bytes", ctypes.c_size_t), ("max_region_bytes", ctypes.c_size_t),
        ("max_regions", ctypes.c_uint64), ("max_charge_bytes", ctypes.c_uint64),
        ("divisible", ctypes.c_uint32), ("export_bytes", ctypes.c_uint32),
        ("pin_base_ns", ctypes.c_uint32), ("pin_page_ns", ctypes.c_uint32),
        ("unpin_base_ns", ctypes.c_uint32),
        ("pin", PIN_FN), ("unpin", UNPIN_FN), ("optional", ctypes.c_void_p * 9),
    ]


class Options(ctypes.Structure):
    """The first fields of hydrant_domain_options_t; `size` tells the library that the others are absent."""
    _fields_ = [
        ("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("registrar_name", ctypes.c_char_p),
        ("registrar", ctypes.POINTER(Registrar)), ("policy", ctypes.c_void_p),
        ("mode", ctypes.c_uint32), ("watch", ctypes.c_uint32),
    ]


class Region(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_size_t), ("len", ctypes.c_size_t), ("key", ctypes.c_void_p)]


class Pin(ctypes.Structure):
    _fields_ = [("region", ctypes.POINTER(Region)), ("hold", ctypes.c_uint64)]


def load(path):
    library = ctypes.CDLL(path)
    library.hydrant_pin.restype = Pin
    library.hydrant_pin.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t,
                                    ctypes.c_uint32]
    library.hydrant_release.argtypes = [Pin]
    library.hydrant_invalidate.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
    library.hydrant_domain_destroy.argtypes = [ctypes.c_uint64, ctypes.c_uint32]
    library.hydrant_error_text.restype = ctypes.c_char_p
    return library


def check(holds, what, library):
    if not holds:
        sys.exit(f"not so: {what} ({library.hydrant_error_text().decode()})")


def main():
    library = load(sys.argv[1])
    pinned, calls = {}, []

    def pin(_user, addr, length, _access, key):
        calls.append("pin")
        pinned[addr] = length
        ctypes.cast(key, ctypes.POINTER(ctypes.c_uint64))[0] = addr
        return 0

    def unpin(_user, addr, _length, _key):
        calls.append("unpin")
        return 0 if pinned.pop(addr, None) is not None else 2

    registrar = Registrar(size=ctypes.sizeof(Registrar), name=b"python", key_bytes=8,
                          pin=PIN_FN(pin), unpin=UNPIN_FN(unpin))
    options = Options()
    library.hydrant_domain_options_init_sized(ctypes.byref(options),
                                              ctypes.c_size_t(ctypes.sizeof(options)))
    options.registrar = ctypes.pointer(registrar)
    domain = ctypes.c_uint64()
    status = library.hydrant_domain_create(ctypes.byref(options), ctypes.byref(domain))
    check(status == 0, "the domain is created", library)

    buffer = ctypes.create_string_buffer(4 * PAGE)
    start = ctypes.addressof(buffer) + PAGE

    def pin_and_release():
        held = library.hydrant_pin(domain, start, 100, LOCAL_WRITE)
        check(bool(held.region), "the buffer is pinned", library)
        region = held.region.contents
        check(region.addr <= start and start + 100 <= region.addr + region.len, "it covers", library)
        key = ctypes.cast(region.key, ctypes.POINTER(ctypes.c_uint64))[0]
        check(key == region.addr, "the key is the registrar's", library)
        check(library.hydrant_release(held) == 0, "the pin is released", library)

    pin_and_release()
    pin_and_release()
    thread = threading.Thread(target=pin_and_release)
    thread.start()
    thread.join()
    check(calls == ["pin"], f"one registration, not {calls}", library)
    status = library.hydrant_domain_destroy(domain, 0)
    check(status == 0 and calls == ["pin", "unpin"] and not pinned, f"undone: {calls}", library)
    print("dlopen_client.py: done")


if __name__ == "__main__":
    main()
