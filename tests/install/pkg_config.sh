#!/usr/bin/env bash
# pkg_config.sh shared|static CC PREFIX SOURCE FOLDER: compiles SOURCE with the flags of firehose.pc, runs it,
# and checks that it was linked as requested.
set -euo pipefail
kind=$1 cc=$2 prefix=$3 source=$4 folder=$5
pc=$(dirname "$(find "$prefix" -name firehose.pc)")
export PKG_CONFIG_PATH=$pc
mkdir -p "$folder"
program=$folder/$(basename "$source" .c)

flags=$(pkg-config --cflags firehose)
if [ "$kind" = static ]; then
  libs="-static $(pkg-config --static --libs firehose)"
else
  libdir=$(pkg-config --variable=libdir firehose)
  libs="$(pkg-config --libs firehose) -Wl,-rpath,$libdir"
fi
# shellcheck disable=SC2086  # the flags are words
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror $flags "$source" $libs -o "$program"
"$program"
if [ "$kind" = static ]; then
  # shellcheck disable=SC2046  # the flags are words
  "$cc" -static -DGASNETT_THREAD_SAFE=1 "$(dirname "$source")/tools_client.c" \
    $(pkg-config --static --cflags --libs hydrant_tools) -o "$program.tools"
  "$program.tools"
fi

needed=$(readelf -d "$program" | grep -c 'NEEDED.*libfirehose\.so\.0\]' || true)
if [ "$kind" = static ]; then [ "$needed" = 0 ]; else [ "$needed" = 1 ]; fi ||
  { echo "$program is not linked as asked ($kind)"; exit 1; }
