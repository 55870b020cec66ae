#!/usr/bin/env bash
# alloc_pkg_config.sh CC PREFIX SOURCE FOLDER BACKEND: compiles SOURCE with what hydrant_alloc.pc says and
# runs it: as it is, which must bring BACKEND; with --as-needed; without jemalloc; and with -static.
set -euo pipefail
cc=$1 prefix=$2 source=$3 folder=$4 backend=$5
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hydrant_alloc.pc)")
export PKG_CONFIG_PATH
mkdir -p "$folder"
rpath=-Wl,-rpath,$(pkg-config --variable=libdir hydrant_alloc)

# build_and_run BACKEND NAME [COMPILER OPTIONS...]
build_and_run() {
  local wanted=$1 program=$folder/$2
  shift 2
  # shellcheck disable=SC2046  # the flags are words
  "$cc" -std=c99 -pedantic -Wall -Wextra -Werror $(pkg-config --cflags hydrant_alloc) "$source" "$@" \
    -o "$program"
  "$program" "$wanted"
}

# shellcheck disable=SC2046
build_and_run "$backend" plain $(pkg-config --libs hydrant_alloc) "$rpath"
# shellcheck disable=SC2046
build_and_run "$backend" as_needed -Wl,--as-needed $(pkg-config --libs hydrant_alloc) "$rpath"
# shellcheck disable=SC2046
build_and_run extents alone $(pkg-config --define-variable=jemalloc= --libs hydrant_alloc) "$rpath"
# shellcheck disable=SC2046
build_and_run extents static -static \
  $(pkg-config --static --define-variable=jemalloc= --libs hydrant_alloc)
# A program that was linked without the library uses it when it is preloaded.
if [ "$backend" = jemalloc ]; then
  LD_PRELOAD=$(find "$prefix" -name 'libhydrant_alloc_jemalloc.so.?') "$folder/alone" jemalloc
fi
