# shellcheck shell=bash
# Sourced by ./run and ./test: lists required packages (Debian 12's names), and builds presets.

# Each line: needed by (run: both scripts, test: ./test, all: ./test --all, peers: that and ./run --peers), package,
# purpose
hydrant_packages='
run  g++                 the compiler
run  cmake               the build
run  ninja-build         the build
test ccache              builds that are quick the second time (optional)
run  pkg-config          finds the libraries below
run  liburing-dev        the uring registrar: the only dependency of libfirehose
run  libibverbs-dev      the ibv registrar (optional)
run  libpmix-dev         jobs under mpirun and srun (optional)
run  systemtap-sdt-dev   static probes in libhydrant (optional)
run  libjemalloc-dev     behind libhydrant_alloc (optional)
run  libbenchmark-dev    bench/
run  libucx-dev          the peer in bench/ (optional)
run  libcli11-dev        options of the programs in bench/tools/
run  nlohmann-json3-dev  their --json
run  python3             the main job and some tests
run  python3-matplotlib  its plots
test libgtest-dev        tests/
test libgmock-dev        tests/
test binutils            lint: readelf and nm; addr2line, by which backtraces name functions and lines
test gdb                 the test of GASNET_BACKTRACE_TYPE=GDB (optional)
test clang-format        lint: formatting
test valgrind            counts the instructions of a hit
test qemu-system-x86     the guests: docs/guest.md
test busybox-static      their programs
test iproute2            rdma, which makes their verbs device, and tc, which disturbs it: docs/verbs.md
test ibverbs-providers   what libibverbs drives it by
test make                another one
test meson               a build system of programs that link the libraries (optional)
test autoconf            another one, by the macros of pkg-config (optional)
test openmpi-bin         jobs under its mpirun, in two guests as well
test dropbear-bin        by which that reaches the second guest
all  mpich               jobs under its mpiexec
all  libpmi2-0           how those speak with it
all  clang               a second compiler, and the check of the lock annotations
all  clang-tidy          static checks
all  libclang-rt-dev     its sanitizers
peers mmdebstrap         the systems of scripts/chroot
'

# hydrant_install NAME... installs the missing packages of these (run, test, all). Without root: prints the
# command.
hydrant_install() {
  local missing=() who package _why
  while read -r who package _why; do
    case " $* " in *" $who "*) ;; *) continue ;; esac
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done <<<"$(grep . <<<"$hydrant_packages")"
  [ ${#missing[@]} -gt 0 ] || return 0
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    echo "This is not a Debian system. Install the contents of these packages, then use --no-install:" >&2
    echo "  ${missing[*]}" >&2
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "Packages are missing. As root:" >&2
    echo "  $line" >&2
    return 1
  fi
  echo "Installing ${missing[*]}"
  hydrant_logged build/logs/install.log env DEBIAN_FRONTEND=noninteractive sh -c "$line"
}

# hydrant_fetch_kernel: unpacks the guests' kernel in the user's cache folder if none is installed. A failure is no
# error.
hydrant_fetch_kernel() {
  hydrant_logged build/logs/kernel.log "$(hydrant_python)" tests/guest/kernel.py --fetch ||
    echo "Tests in emulated machines are skipped." >&2
}

# hydrant_logged LOG COMMAND... runs COMMAND with its output in LOG; on failure shows the end of LOG.
hydrant_logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null 9>&- && return 0
  echo "Failed: $*" >&2
  tail -n 40 "$log" >&2
  echo "(full log: $log)" >&2
  return 1
}

# A command that is started with it ends with the script, also where SIGKILL ends the script: at once, or not begun
# if the script has ended before the kernel was asked.
hydrant_with_script=()
if command -v setpriv >/dev/null; then
  hydrant_with_script=(setpriv --pdeathsig TERM sh -c '[ "$PPID" = "$0" ] || exit 143; exec "$@"' $$)
fi

# hydrant_followed TEXT AGAIN LOG COMMAND... runs COMMAND with its output in LOG and prints its progress meanwhile
# (test_progress.py); ends it after hydrant_limit seconds (0: never), with status 124.
hydrant_followed() {
  local text=$1 again=$2 log=$3 status=0
  shift 3
  mkdir -p "$(dirname "$log")"
  : >"$log"
  "${hydrant_with_script[@]}" "$(hydrant_python)" scripts/test_progress.py "$text" "$log" "$again" 9>&- &
  hydrant_follower=$!
  "${hydrant_with_script[@]}" "$(hydrant_python)" -B scripts/run_limited.py "${hydrant_limit:-0}" "$@" \
    >"$log" 2>&1 </dev/null 9>&- &
  hydrant_child=$!
  wait $hydrant_child || status=$?
  hydrant_child=
  hydrant_end_children
  return $status
}

# Ends what hydrant_followed started, whatever ends the script.
hydrant_end_children() {
  local child
  for child in ${hydrant_child:-} ${hydrant_follower:-}; do
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  done
  hydrant_child='' hydrant_follower=''
}
trap hydrant_end_children EXIT
# hydrant_ended SIGNAL STATUS
hydrant_ended() {
  echo "$0: ended by $1" >&2
  exit "$2"
}
trap 'hydrant_ended SIGINT 130' INT
trap 'hydrant_ended SIGTERM 143' TERM
trap 'hydrant_ended SIGHUP 129' HUP

# hydrant_need_tools: ends the script if a program that every build needs is missing.
hydrant_need_tools() {
  local tool
  for tool in cmake ctest ninja; do
    command -v $tool >/dev/null && continue
    echo "$tool is missing. As root: apt-get update && apt-get install $(sed 's/^ninja/&-build/; s/^ctest/cmake/' <<<$tool)" >&2
    exit 1
  done
}

# hydrant_choose_ccache: where the user's cache folder cannot be written, the compiler cache is in build/.
hydrant_choose_ccache() {
  local folder=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/ccache}
  if mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ]; then return; fi
  export CCACHE_DIR=$PWD/build/ccache
}

# hydrant_lock SCRIPT: ends if another script of this clone builds or tests.
hydrant_lock() {
  if ! mkdir -p build 2>/dev/null || ! [ -w build ] || { [ -e build/.lock ] && ! [ -w build/.lock ]; }; then
    echo "$1: $PWD/build cannot be written, and holds all that is built: use a clone of your own" >&2
    exit 1
  fi
  exec 9>build/.lock
  flock -n 9 || { echo "$1: another ./test or ./run is at work in this clone" >&2 && exit 1; }
}

# hydrant_build PRESET [WRAPPER...] configures and builds build/PRESET, by commands that begin with WRAPPER, and leaves
# the tree's name in build/PRESET/tree; on failure shows the end of the log.
hydrant_build() {
  local log=build/logs/$1.build.log status=0
  rm -f "build/$1/tree"
  hydrant_logged "build/logs/$1.configure.log" "${@:2}" cmake --preset "$1" || return
  hydrant_followed "$1: building" "" "$log" "${@:2}" cmake --build --preset "$1" || status=$?
  [ $status != 0 ] || "$(hydrant_python)" -B scripts/tree_name.py >"build/$1/tree"
  [ $status = 0 ] || printf 'Failed: the build of %s\n%s\n(full log: %s)\n' "$1" "$(tail -n 40 "$log")" "$log" >&2
  return $status
}

# Prefers the distribution's Python: the packages above are for it.
hydrant_python() {
  if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

# hydrant_bad_usage SCRIPT TEXT ends with the status for wrong options.
hydrant_bad_usage() {
  echo "$1: $2 (see $1 --help)" >&2
  exit 2
}
