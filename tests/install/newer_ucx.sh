#!/usr/bin/env bash
# newer_ucx.sh CMAKE SOURCE FOLDER: configures with a UCX whose headers differ from those that the benchmarks
# were written for. UCX is left out with a reason, or is an error if it was requested by name.
set -euo pipefail
cmake=$1 source=$2 folder=$3
rm -rf "$folder" && mkdir -p "$folder/include/ucs/memory" "$folder/include/ucp/api"
echo '#error another interface' | tee "$folder/include/ucs/memory/rcache.h" >"$folder/include/ucp/api/ucp.h"
cat >"$folder/ucx-ucs.pc" <<PC
Name: ucx-ucs
Description: a UCX that is newer
Version: 9.1
Cflags: -I$folder/include
Libs: -lucs
PC
export PKG_CONFIG_PATH=$folder

# configure STATUS TEXT [CMAKE OPTIONS...]
configure() {
  local wanted=$1 text=$2 status=0 output
  shift 2
  rm -rf "$folder/build"
  output=$("$cmake" -S "$source" -B "$folder/build" -G Ninja -DHYDRANT_BUILD_TESTS=OFF "$@" 2>&1) || status=$?
  tr -s ' \n' '  ' <<<"$output" >"$folder/output"
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$text" "$folder/output"; then
    echo "status $status, not $wanted; or '$text' is missing in the output: $output" && exit 1
  fi
}

why='UCX is left out of the benchmarks: its headers, 9.1, are not those'
configure 0 "$why"
grep -q 'another interface' "$folder/output" || { echo "the compiler's error is missing" && exit 1; }
grep -q 'HYDRANT_HAVE_UCX=0' "$folder/build/build.ninja" ||
  { echo "benchmarks are built with UCX" && exit 1; }
configure 1 'or set HYDRANT_WITH_UCX to AUTO or OFF' -DHYDRANT_WITH_UCX=ON
rm -rf "$folder/build"
