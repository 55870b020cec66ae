#!/usr/bin/env bash
# ibv_pkg_config.sh CC PREFIX CONSUMER LAYER FOLDER: compiles both programs with the options of
# firehose_ibv.pc, and runs them. CONSUMER only names the registrar; LAYER calls it, and exits with 77 where
# there is no device.
set -euo pipefail
cc=$1 prefix=$2 consumer=$3 layer=$4 folder=$5
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name firehose_ibv.pc)")
export PKG_CONFIG_PATH
mkdir -p "$folder"
strict="-std=c99 -pedantic -Wall -Wextra -Werror"
for package in firehose_ibv firehose_ibv_nohooks; do
  flags=$(pkg-config --cflags $package)
  libs="$(pkg-config --libs $package) $(pkg-config --variable=rpath $package)"
  # shellcheck disable=SC2086  # the flags are words
  "$cc" $strict $flags "$consumer" -Wl,--as-needed $libs -o "$folder/names"
  "$folder/names"
  # shellcheck disable=SC2086
  "$cc" $strict $flags "$layer" -Wl,--as-needed $libs -libverbs -o "$folder/layer"
  "$folder/layer" || [ $? = 77 ]
  hooks=$(readelf -d "$folder/layer" | grep -c 'NEEDED.*libfirehose_hooks' || true)
  if [ $package = firehose_ibv ]; then [ "$hooks" = 1 ]; else [ "$hooks" = 0 ]; fi ||
    { echo "$package brings $hooks hooks"; exit 1; }
done
