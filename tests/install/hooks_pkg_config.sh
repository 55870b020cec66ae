#!/usr/bin/env bash
# hooks_pkg_config.sh CC PREFIX SOURCE FOLDER: links SOURCE with the flags of firehose_hooks.pc, dynamically
# and with -static, and runs both. It also preloads the installed library.
set -euo pipefail
cc=$1 prefix=$2 source=$3 folder=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name firehose_hooks.pc)")
export PKG_CONFIG_PATH
mkdir -p "$folder"
libdir=$(pkg-config --variable=libdir firehose_hooks)

# shellcheck disable=SC2046  # the flags are words
"$cc" -D_GNU_SOURCE -Wall -Wextra "$source" $(pkg-config --libs firehose_hooks) \
  -Wl,-rpath,"$libdir" -o "$folder/linked"
"$folder/linked"
# The library is linked although the program calls none of its functions by name.
cat >"$folder/calls_nothing.c" <<'C'
#include <dlfcn.h>
int main(void) { return dlsym(RTLD_DEFAULT, "hydrant_hooks_1") == 0; }
C
# shellcheck disable=SC2046
"$cc" -D_GNU_SOURCE "$folder/calls_nothing.c" -Wl,--as-needed $(pkg-config --libs firehose_hooks) \
  -Wl,-rpath,"$libdir" -o "$folder/calls_nothing"
"$folder/calls_nothing"
# shellcheck disable=SC2046
"$cc" -D_GNU_SOURCE -DLINKED_STATICALLY -Wall -Wextra "$source" -static \
  $(pkg-config --static --libs firehose_hooks) -o "$folder/static"
"$folder/static"
"$cc" -D_GNU_SOURCE -Wall -Wextra "$source" -o "$folder/preloaded"
LD_PRELOAD=$libdir/libfirehose_hooks.so.0 "$folder/preloaded"
if "$folder/preloaded" 2>/dev/null; then
  echo "the consumer finds hooks where there are none"
  exit 1
fi
