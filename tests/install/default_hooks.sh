#!/usr/bin/env bash
# default_hooks.sh CC PREFIX HERE FOLDER: checks that the flags of firehose.pc suffice for free hits: links
# coverage_program.c in the ways that programs are linked, with other allocators, with functions of its own,
# under sanitizers, with -static, and through a library; each must be "watched", or "checked" where the hooks
# cannot see the calls.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../support/patience.sh"
cc=$1 prefix=$2 here=$3 folder=$4
rm -rf "$folder" && mkdir -p "$folder"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name firehose.pc)")
export PKG_CONFIG_PATH
unset LD_PRELOAD HYDRANT_LOG
read -ra cflags <<<"$(pkg-config --cflags firehose) -std=c99 -fno-builtin -Wall -Wextra -Werror"
read -ra libs <<<"$(pkg-config --libs firehose) $(pkg-config --variable=rpath firehose)"
read -ra nohooks <<<"$(pkg-config --libs firehose_nohooks) $(pkg-config --variable=rpath firehose_nohooks)"
read -ra static <<<"$(pkg-config --static --libs firehose)"
program=("$here/coverage_program.c")
both=("$here/coverage_program.c" "$here/coverage_library.c")
failures=0
echo 'int main(void) { return 0; }' >"$folder/probe.c"

fail() { echo "FAILED: $*" && failures=$((failures + 1)); }

# link NAME [COMPILER OPTIONS...]
link() {
  local name=$1
  shift
  "$cc" "${cflags[@]}" "$@" -o "$folder/$name" || { fail "$name: cannot be linked" && return 1; }
}

# expect COVERAGE NAME [COMPILER OPTIONS...]
expect() {
  local coverage=$1 name=$2
  shift 2
  link "$name" "$@" || return 0
  timeout "$(patiently 120)" "$folder/$name" "$coverage" || fail "$name: not $coverage"
}

has_library() { "$cc" "-l$1" -shared -o "$folder/probe.so" 2>"$folder/probe.log"; }

# needed FILE: the libraries that it requests from the loader, in order
needed() { readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

expect watched plain "${both[@]}" "${libs[@]}"
needed "$folder/plain" >"$folder/needed"
[ "$(grep -c libfirehose_hooks "$folder/needed")" = 1 ] || fail "plain needs: $(<"$folder/needed")"
[ "$(head -n 1 "$folder/needed")" = libfirehose_hooks.so.0 ] || fail "plain: the hooks are not the first"
expect watched as_needed -Wl,--as-needed "${both[@]}" "${libs[@]}"
expect watched fixed_address -fno-pie -no-pie "${both[@]}" "${libs[@]}"
expect watched static_words "${both[@]}" "${static[@]}" "$(pkg-config --variable=rpath firehose)"
for linker in gold lld; do
  if command -v ld.$linker >/dev/null; then
    expect watched linker_$linker -fuse-ld=$linker "${both[@]}" "${libs[@]}"
  fi
done

# Programs that define mmap() or malloc() themselves.
expect checked own_mmap -DOWN_MMAP "${both[@]}" "${libs[@]}"
expect watched own_malloc -DOWN_MALLOC "${both[@]}" "${libs[@]}"
# Other allocators: jemalloc maps by the symbol, tcmalloc by raw system calls.
if has_library jemalloc; then
  expect watched jemalloc_behind "${both[@]}" "${libs[@]}" -Wl,--no-as-needed -ljemalloc
  expect watched jemalloc_before -Wl,--no-as-needed -ljemalloc "${both[@]}" "${libs[@]}"
fi
if has_library :libtcmalloc_minimal.so.4; then
  expect checked tcmalloc_behind "${both[@]}" "${libs[@]}" -Wl,--no-as-needed -l:libtcmalloc_minimal.so.4
  expect checked tcmalloc_before -Wl,--no-as-needed -l:libtcmalloc_minimal.so.4 "${both[@]}" \
    "${libs[@]}"
fi
# A sanitizer's runtime interposes the same functions.
for sanitizer in address thread; do
  if "$cc" -fsanitize=$sanitizer "$folder/probe.c" -o "$folder/probe" 2>"$folder/probe.log" &&
    "$folder/probe" 2>"$folder/probe.log"; then
    expect checked sanitizer_$sanitizer -fsanitize=$sanitizer "${both[@]}" "${libs[@]}"
  fi
done

# -static: the linker's --wrap. A program that has a dynamic loader calls libc from its libraries as well.
expect watched static -static "${both[@]}" "${static[@]}"
expect watched static_pie -static-pie -fPIE "${both[@]}" "${static[@]}"
expect checked static_own_mmap -static -DOWN_MMAP "${both[@]}" "${static[@]}"
expect checked archives "${both[@]}" -Wl,-Bstatic "${static[@]}" -Wl,-Bdynamic
if needed "$folder/archives" | grep -q firehose; then fail "archives: needs a library of ours"; fi

# With firehose_nohooks.pc, which leaves the hooks out.
expect checked nohooks "${both[@]}" "${nohooks[@]}"
if needed "$folder/nohooks" | grep -q hooks; then fail "nohooks: needs the hooks"; fi

# Through another library, and through dlopen(), no call of the program reaches the hooks. The library reports
# that once, with the remedy.
link libcovered.so -shared -fPIC "$here/coverage_library.c" "${libs[@]}" || true
expect checked through_library "${program[@]}" -L"$folder" -lcovered -Wl,-rpath,"$folder"
expect checked through_dlopen "${program[@]}" "-DLIBRARY=\"$folder/libcovered.so\"" -ldl
for name in through_library through_dlopen nohooks; do
  HYDRANT_LOG=info "$folder/$name" checked 2>"$folder/log" || fail "$name with a log"
  count=$(grep -c 'asks the kernel .*link the program itself with' "$folder/log" || true)
  [ "$count" = 1 ] || { fail "$name prints the remedy $count times" && cat "$folder/log"; }
done
HYDRANT_LOG=info "$folder/plain" watched 2>"$folder/log"
grep -q 'hits are free of checks' "$folder/log" || fail "plain does not say that hits are free"
# The same library in a program that links the hooks as its own.
expect watched library_and_hooks "${program[@]}" -L"$folder" -lcovered -Wl,-rpath,"$folder" "${libs[@]}"
exit $((failures != 0))
