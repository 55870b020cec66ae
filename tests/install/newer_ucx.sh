#!/usr/bin/env bash
# newer_ucx.sh CMAKE SOURCE FOLDER: configures with a UCX whose headers are other than the benchmarks were
# written for: it is left out with a reason, and is an error where it was asked for by name.
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
  local wanted=$1 text=$2 status=0 said
  shift 2
  rm -rf "$folder/build"
  said=$("$cmake" -S "$source" -B "$folder/build" -G Ninja -DHYDRANT_BUILD_TESTS=OFF "$@" 2>&1) || status=$?
  tr -s ' \n' '  ' <<<"$said" >"$folder/said"
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$text" "$folder/said"; then
    echo "status $status, not $wanted; or '$text' is not said: $said" && exit 1
  fi
}

why='UCX is left out of the benchmarks: its headers, 9.1, are not those'
configure 0 "$why"
grep -q 'another interface' "$folder/said" || { echo "the compiler's complaint is not said" && exit 1; }
grep -q 'HYDRANT_HAVE_UCX=0' "$folder/build/build.ninja" ||
  { echo "benchmarks are built with UCX" && exit 1; }
configure 1 'or set HYDRANT_WITH_UCX to AUTO or OFF' -DHYDRANT_WITH_UCX=ON
rm -rf "$folder/build"
