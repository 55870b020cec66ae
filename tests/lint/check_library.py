#!/usr/bin/python3
"""check_library.py CHECK FILE...: checks symbols and dependencies of the built libraries.

exports LIB.so LIST   the dynamic symbols are those of LIST, and all are hydrant_*, gex_* or gasnet_*
archive LIB.a         no strong global symbol except those and symbols in namespace hydrant
apart LIB.a LIB.a     no name is inline in only one of them
tls LIB.so [BYTES]    at most 64 bytes of static thread-local storage (or BYTES), or dlopen() may fail: glibc
                      keeps 512 for all libraries that are loaded late
needed LIB.so [NAME...]  ldd lists only the five allowed libraries and those of these names
cancellation ROOT LIB.a...  no object but that of uncancelled.cpp calls a cancellation point of libc, and no
                       source of the tree calls verbs that may be one
writes LIST LIB.a...  each object that writes to files by itself is in LIST with its reason
allocations LIB.a [LIST]  no object calls an allocation function that throws, or throws as containers do, but
                      those in LIST, which says when they do
hooks LIB.so MAP      the dynamic symbols are those of the version script; needs only libc and the loader,
                      and no function that finds thread-local storage (it may allocate)
libc_calls LIB.so LIST [LIBC]  each function of this libc that may give or take memory by its name, or that is
                      newer than glibc 2.36, is hooked by LIB.so or is in LIST with the reason
"""
import pathlib
import re
import subprocess
import sys

MAX_TLS_BYTES = 64
ALLOWED = re.compile(
    r"^(libc|libm|libgcc_s|libstdc\+\+|liburing|ld-linux[-\w]*|linux-vdso)\.so\.\d+$")
OUR_C_NAME = re.compile(r"^(hydrant|gex|gasnet)_")
OURS = re.compile(OUR_C_NAME.pattern + r"|^_Z(?:Z|GV|TV|TT|TH|TW|GR|Thn?\d+_)?N[KVRO]*7hydrant")


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def symbols(*command):
    """(type letter, name) of each symbol that nm prints."""
    rows = (line.split() for line in run("nm", *command).splitlines())
    rows = (row for row in rows if len(row) >= 2 and len(row[-2]) == 1)
    return [(row[-2], row[-1].split("@")[0]) for row in rows if row[-2] != "A"]  # A: a version's name


def check_exports(library, list_file):
    exported = {name for _, name in symbols("-D", "--defined-only", library)}
    with open(list_file) as lines:
        listed = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    yield from (f"{name}: exported, but not in the list" for name in sorted(exported - listed))
    yield from (f"{name}: in the list, but not exported" for name in sorted(listed - exported))
    foreign = (name for name in sorted(exported) if not OUR_C_NAME.match(name))
    yield from (f"{name}: exported without the project's prefix" for name in foreign)
    if not exported:
        yield f"{library} exports nothing"


def check_archive(archive):
    found = symbols("--defined-only", "--extern-only", archive)
    if not found:
        yield f"{archive} defines nothing"
    for kind, name in found:
        # A weak symbol that every object with static probes has, by convention.
        is_shared_inline = kind in "WVu" and (name.startswith("_Z") or name == "_.stapsdt.base")
        if not is_shared_inline and not OURS.match(name):
            yield f"{name} ({kind}): may clash with a client's own name"


def check_apart(one, other):
    """Both contain the base layer from the same files, so its names must be of the same kind in both."""
    found = [symbols("--defined-only", "--extern-only", archive) for archive in (one, other)]
    if not all(found):
        yield f"{one} or {other} defines nothing"
    kinds = [{name: kind in "WVu" for kind, name in rows} for rows in found]
    yield from (f"{name}: inline in one archive, and not in the other: a program gets one of them for both"
                for name, is_weak in sorted(kinds[0].items()) if kinds[1].get(name, is_weak) != is_weak)


def check_tls(library, most=MAX_TLS_BYTES):
    for line in run("readelf", "-lW", library).splitlines():
        words = line.split()
        if words[:1] == ["TLS"]:
            size = int(words[5], 16)
            print(f"{size} bytes of static thread-local storage")
            if size > int(most):
                yield f"{library}: {size} bytes of thread-local storage, at most {most}"


def check_needed(library, *more):
    names = [line.split()[0].rsplit("/", 1)[-1] for line in run("ldd", library).splitlines()]
    print("needs " + " ".join(names))
    yield from (f"{library} needs {name}" for name in names
                if not ALLOWED.match(name) and name.split(".so")[0] not in more)
    if not any(name.startswith("libc.") for name in names):
        yield f"ldd {library} does not list libc"


# POSIX's cancellation points and glibc's additional ones. fcntl() is one for locks of files alone.
CANCELLATION_POINTS = frozenset("""
    accept accept4 clock_nanosleep close connect copy_file_range creat epoll_pwait epoll_wait
    fallocate fclose fdatasync fflush fgetc fgets fopen fprintf fputc fputs fread fscanf
    __isoc99_fscanf fsync fwrite getaddrinfo getifaddrs getline getrandom lockf mkstemp msgrcv msync
    nanosleep open open64 openat pause pclose perror poll popen posix_fallocate ppoll pread preadv
    printf pselect pthread_cond_clockwait pthread_cond_timedwait pthread_cond_wait pthread_join putc
    puts pwrite pwritev read readv recv recvfrom recvmsg select sem_clockwait sem_timedwait sem_wait
    send sendmsg sendto sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range
    system tcdrain usleep vdprintf vfprintf vprintf wait waitid waitpid write writev
    _ZNSt6thread4joinEv""".split())
# The sources that call them: uncancelled.cpp disables cancellation, and gasnett_nsleep() and
# gasnett_cond_wait() are cancellation points, as their names say.
MAY_CALL = {"uncancelled": CANCELLATION_POINTS, "timers": {"nanosleep"}, "locks": {"pthread_cond_wait"}}
# The functions of libibverbs that only compute, or only use memory that the device has mapped.
VERBS_WITHOUT_POINTS = ("get_device_name",)
VERBS_FOLDERS = ("firehose/registrars/ibv", "rdma/ibv")
VERBS_CALL = re.compile(r"(uncancelled::call\(\s*(?:\[&\] \{\s*return )?)?(?<![\w\"])ibv_((?:"
                        r"alloc|attach|close|create|dealloc|dereg|destroy|detach|free|get|import|modify"
                        r"|open|query|reg|req|rereg|resize)_\w+)\(")


def read_list(list_file):
    """The text behind the name in each line; a line that begins with # is a comment."""
    with open(list_file) as lines:
        rows = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return {row[0]: row[1].strip() if len(row) == 2 else "" for row in rows}


def check_cancellation(root, *archives):
    found = {}
    for line in run("nm", "-A", "--undefined-only", *archives).splitlines():
        place, _, name = line.rpartition(" ")
        # No place: a heading, of one of several archives.
        if place and name.split("@")[0] in CANCELLATION_POINTS:
            found.setdefault(place.split(":")[1].split(".")[0], set()).add(name.split("@")[0])
    if not found:
        yield f"{' '.join(archives)}: no call of a cancellation point"
    for source, names in sorted(found.items()):
        calls = ", ".join(sorted(names - set(MAY_CALL.get(source, ()))))
        if calls:
            yield (f"{source}.cpp calls {calls}, which can end a cancelled thread: call the function of "
                   f"this name in firehose/base/uncancelled.hpp")
    for path in sorted(p for layer in VERBS_FOLDERS for p in pathlib.Path(root, layer).rglob("*.[ch]pp")):
        text = re.sub(r'//.*|^extern .*|"(?:[^"\\\n]|\\.)*"', "", path.read_text(), flags=re.MULTILINE)
        for call in VERBS_CALL.finditer(text):
            if not call[1] and call[2] not in VERBS_WITHOUT_POINTS:
                line = text.count("\n", 0, call.start()) + 1
                yield (f"{path.relative_to(root)}:{line}: ibv_{call[2]}() may be a cancellation point: "
                       f"call it through uncancelled::call()")


# Functions of libc that write to files, and so may raise SIGPIPE or SIGXFSZ.
WRITES = frozenset("""
    write writev pwrite pwritev pwrite64 pwritev2 sendfile splice fwrite fprintf vfprintf printf vprintf
    dprintf vdprintf fputs fputc putc puts putchar perror psignal""".split())


def check_calls(functions, kind, rule, list_file, archives):
    """Objects that call one of the functions, against the list of those that may, each with a reason."""
    listed = read_list(list_file)
    yield from (f"{source}: the list gives no reason for it" for source, why in listed.items() if not why)
    found = {}
    for line in run("nm", "-A", "--undefined-only", *archives).splitlines():
        place, _, name = line.rpartition(" ")
        if not place:  # a heading, of one of several archives
            continue
        name = re.sub(r"^_ZN7hydrant11uncancelled\d+([a-z_0-9]+)E.*", r"\1", name.split("@")[0])
        if name in functions:
            found.setdefault(place.split(":")[1].split(".")[0], set()).add(name)
    if not found:
        yield f"{' '.join(archives)}: no call of {kind}"
    for source in sorted(set(found) - set(listed) - {"uncancelled"}):
        yield f"{source}.cpp calls {', '.join(sorted(found[source]))}, {rule} {list_file}"
    yield from (f"{source}: in the list, but calls no {kind}" for source in sorted(set(listed) - set(found)))


def check_writes(list_file, *archives):
    rule = "which may raise SIGPIPE or SIGXFSZ: call write_quietly(), or give the reason in"
    return check_calls(WRITES, "function that writes", rule, list_file, archives)


# operator new and new[], with and without alignment; what containers throw when they cannot grow.
THROWING = re.compile(r"_Zn[wa]m(St11align_val_t)?|_ZSt\d+__throw_(bad|length)\w+|__cxa_throw")


def check_allocations(archive, list_file=None):
    listed = read_list(list_file) if list_file else {}
    yield from (f"{source}: the list does not say when it allocates"
                for source, when in listed.items() if not when)
    lines = run("nm", "-A", archive).splitlines()
    if not lines:
        yield f"{archive} has no symbols"
    found = {}
    for line in lines:
        place, _, name = line.rpartition(" ")
        if place.endswith(" U") and THROWING.fullmatch(name):
            found.setdefault(place.split(":")[1].split(".")[0], set()).add(name)
    for source in sorted(set(found) - set(listed)):
        calls = ", ".join(sorted(found[source]))
        yield (f"{source}.cpp calls {calls}, which throws when memory is used up: allocate with "
               f"std::nothrow, or ahead, and answer GASNET_ERR_RESOURCE")
    yield from (f"{source}: in the list, but calls no function that throws"
                for source in sorted(set(listed) - set(found)))


def check_hooks(library, map_file):
    with open(map_file) as lines:
        text = re.sub(r"/\*.*?\*/", "", lines.read(), flags=re.DOTALL)
    listed = set(re.findall(r"\w+(?=;)", text.split("global:")[1].split("local:")[0]))
    exported = {name for _, name in symbols("-D", "--defined-only", library)}
    yield from (f"{name}: exported, but not in the list" for name in sorted(exported - listed))
    yield from (f"{name}: in the list, but not exported" for name in sorted(listed - exported))
    for line in run("readelf", "-dW", library).splitlines():
        if "(NEEDED)" in line and not re.search(r"\[(libc|ld-linux[-\w]*)\.so\.\d+\]", line):
            yield f"{library} needs {line.split()[-1]}"
    wanted = {name for _, name in symbols("-D", "--undefined-only", library)}
    if "__tls_get_addr" in wanted:
        yield f"{library} calls __tls_get_addr"
    print(f"{len(exported)} names")


GIVES_OR_TAKES = re.compile(
    r"alloc|free|map|^_*s?brk$|shm|madvise|align|mprotect|truncate|trim|(pthread|thrd)_create"
    r"|^dl(m?open|close)$")
REVIEWED_WHOLE = (2, 36)  # of later versions each new name is in the list


def check_libc_calls(library, list_file, libc=None):
    if libc is None:
        (libc,) = re.findall(r"libc\.so\.6 => (\S+)", run("ldd", library))
    hooked = {name for _, name in symbols("-D", "--defined-only", library)}
    reasons = read_list(list_file)
    found = 0
    for line in run("nm", "-D", "--defined-only", libc).splitlines():
        name, _, version = line.split()[-1].partition("@")
        number = re.fullmatch(r"@?GLIBC_(\d+)\.(\d+).*", version)
        if number is None or name.startswith("GLIBC_"):
            continue  # private, or the name of a version
        found += 1
        is_new = (int(number[1]), int(number[2])) > REVIEWED_WHOLE
        if (is_new or GIVES_OR_TAKES.search(name)) and name not in hooked and \
                not any(re.fullmatch(pattern, name) for pattern in reasons):
            yield f"{name}{version}: neither hooked nor in the list"
    if not found:
        yield f"{libc} has no function of glibc"


CHECKS = {
    "exports": check_exports,
    "archive": check_archive,
    "apart": check_apart,
    "tls": check_tls,
    "needed": check_needed,
    "hooks": check_hooks,
    "libc_calls": check_libc_calls,
    "cancellation": check_cancellation,
    "writes": check_writes,
    "allocations": check_allocations,
}


def main():
    faults = list(CHECKS[sys.argv[1]](*sys.argv[2:]))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
