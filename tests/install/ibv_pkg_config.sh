#!/usr/bin/env bash
# ibv_pkg_config.sh CC PREFIX CONSUMER LAYER FOLDER: compiles both programs with the options of
# firehose_ibv.pc, and runs them. CONSUMER only names the registrar; LAYER calls it, and exits with 77 where
# there is no device. A third program uses no symbol of libfirehose: the linker drops that library, and
# libfirehose_ibv has to find it.
set -euo pipefail
cc=$1 prefix=$2 consumer=$3 layer=$4 folder=$5
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name firehose_ibv.pc)")
export PKG_CONFIG_PATH
mkdir -p "$folder"
cat >"$folder/only.c" <<'END'
#include <hydrant/ibv_registrar.h>
int main(void) {
  hydrant_registrar_t registrar;
  if (hydrant_ibv_registrar_open(0, 0, &registrar) == 0) hydrant_ibv_registrar_destroy(&registrar);
  return 0;
}
END
strict="-std=c99 -pedantic -Wall -Wextra -Werror"
for package in firehose_ibv firehose_ibv_nohooks; do
  flags=$(pkg-config --cflags $package)
  libs="$(pkg-config --libs $package) $(pkg-config --variable=rpath $package)"
  # shellcheck disable=SC2086  # the flags are words
  "$cc" $strict $flags "$consumer" -Wl,--as-needed $libs -o "$folder/names"
  "$folder/names"
  # shellcheck disable=SC2086
  "$cc" $strict $flags "$folder/only.c" -Wl,--as-needed $libs -o "$folder/only"
  "$folder/only"
  # shellcheck disable=SC2086
  "$cc" $strict $flags "$layer" -Wl,--as-needed $libs -libverbs -o "$folder/layer"
  "$folder/layer" || [ $? = 77 ]
  hooks=$(readelf -d "$folder/layer" | grep -c 'NEEDED.*libfirehose_hooks' || true)
  if [ $package = firehose_ibv ]; then [ "$hooks" = 1 ]; else [ "$hooks" = 0 ]; fi ||
    { echo "$package brings $hooks hooks"; exit 1; }
done
