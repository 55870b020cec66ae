#!/usr/bin/env bash
# preloaded_programs.sh HOOKS: programs that are not linked with the hooks have the same output and exit
# status with them, alone and beside another allocator that is preloaded before or after them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../../../support/patience.sh"
hooks=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

allocator=
for candidate in "$(/sbin/ldconfig -p | sed -n 's/.*libjemalloc\.so\.2.*=> //p' | head -n 1)"; do
  [ -e "$candidate" ] && allocator=$candidate
done
preloads=("$hooks")
if [ -n "$allocator" ]; then
  preloads+=("$hooks $allocator" "$allocator $hooks")
else
  echo "no libjemalloc.so.2 on this machine: not tried beside another allocator"
fi

# compare NAME COMMAND...: output and exit status, without and with the hooks.
compare() {
  local name=$1 status=0 expected=0 preload
  shift
  "$@" >"$folder/expected" 2>&1 </dev/null || expected=$?
  for preload in "${preloads[@]}"; do
    status=0
    LD_PRELOAD=$preload timeout "$(patiently 60)" "$@" >"$folder/seen" 2>&1 </dev/null || status=$?
    if [ "$status" != "$expected" ] || ! cmp -s "$folder/expected" "$folder/seen"; then
      echo "$name with LD_PRELOAD=$preload: status $status, not $expected; output:"
      head -n 20 "$folder/seen"
      failures=$((failures + 1))
    fi
  done
  echo "$name: compared ${#preloads[@]} times"
}

# Functions that the other allocator may lack.
compare blocks /usr/bin/python3 -c '
import ctypes
libc = ctypes.CDLL(None)
size = ctypes.c_size_t
for name in ("malloc", "reallocarray"): getattr(libc, name).restype = ctypes.c_void_p
release = libc.free_sized if hasattr(libc, "free_sized") else libc.free
for n in range(1, 60):
    release(ctypes.c_void_p(libc.malloc(size(n * 1000))), size(n * 1000))
    libc.free(ctypes.c_void_p(libc.reallocarray(None, size(n), size(2 << 20))))
print("released")'

# A folder of many files that do not change during the test.
mkdir -p "$folder/listed/names"
(cd "$folder/listed/names" && touch name-{1..1000} "$(printf 'n%.0s' {1..200})" && chmod 755 name-1*)
compare ls ls -la "$folder/listed/names"
compare false false
compare sort bash -c 'seq 20000 | sort -R --random-source=/bin/sh | sort -n -S 1M --parallel=2 | tail -n 1'
compare bash bash -c '
for i in 1 2 3 4 5 6 7 8; do (echo $i | cat) & wait $!; done
printf "%s\n" {1..2000} | wc -l'
compare python_threads /usr/bin/python3 -c '
import threading
sums = []
def work(n): sums.append(sum(len(bytearray(k * 1000)) for k in range(n)))
threads = [threading.Thread(target=work, args=(100,)) for _ in range(50)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(sums), sums[0])'
compare python_processes /usr/bin/python3 -c '
import ctypes, mmap, multiprocessing, subprocess
def square(n): return n * n
m = mmap.mmap(-1, 1 << 22); m[:5] = b"hello"; m.resize(1 << 23); print(m[:5]); m.close()
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(square, range(20)))
print(subprocess.run(["echo", "child"], capture_output=True).stdout)
print(ctypes.CDLL("libm.so.6").abs(-3))'
compare loader_error /usr/bin/python3 -c '
import ctypes
try: ctypes.CDLL("libnothing-of-this-name.so")
except OSError as error: print(error)'

# The hooks report every family of functions, whichever allocator is preloaded.
cat >"$folder/families.py" <<'PYTHON'
import ctypes
class Hooks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", ctypes.c_uint32), ("families", ctypes.c_uint32)]
print(Hooks.in_dll(ctypes.CDLL(None), "hydrant_hooks_1").families)
PYTHON
for preload in "${preloads[@]}"; do
  families=$(LD_PRELOAD=$preload /usr/bin/python3 "$folder/families.py")
  if [ "$families" != 31 ]; then
    echo "LD_PRELOAD=$preload: families $families, not 31"
    failures=$((failures + 1))
  fi
done
exit "$((failures > 0))"
