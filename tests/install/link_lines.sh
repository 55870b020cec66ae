#!/usr/bin/env bash
# link_lines.sh meson|autoconf PREFIX HERE FOLDER: builds link_lines/ by the installed pkg-config files alone:
# shared, with archives and the shared hooks where the build system knows that, and with -static; and runs its
# programs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../support/patience.sh"
system=$1 prefix=$2 here=$3 folder=$4
rm -rf "$folder" && mkdir -p "$folder"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hydrant.pc)")
libdir=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH GASNET_PSHM_NODES=2
unset LDFLAGS CFLAGS CXXFLAGS
needs() { command -v "$1" >/dev/null || { echo "$1 is not installed: apt-get install $2" && exit 77; }; }
# linked KIND PROGRAM: whether PROGRAM is linked as KIND says
linked() {
  local needed
  needed=$(readelf -d "$2" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  case $1 in
    shared) grep -qE 'libfirehose\.so|libhydrant\.so' <<<"$needed" ;;
    static) ! grep -qE 'libfirehose\.so|libhydrant\.so' <<<"$needed" ;;
    alone) [ -z "$needed" ] ;;
  esac || { echo "$2 is not $1: $needed" && exit 1; }
}

if [ "$system" = meson ]; then
  needs meson meson
  for kind in shared static alone; do
    options=(-Ddefault_library=static -Dc_link_args=-static -Dcpp_link_args=-static)
    [ $kind != static ] || options=(-Ddefault_library=static -Dc_link_args="-Wl,-rpath,$libdir")
    [ $kind != shared ] || options=(-Ddefault_library=shared)
    meson setup "${options[@]}" "$folder/$kind" "$here/link_lines"
    meson compile -C "$folder/$kind"
    meson test -C "$folder/$kind" --print-errorlogs --timeout-multiplier "$(patiently 5)"
    for program in firehose hydrant gasnet-smp-seq gasnet-ibv-par; do
      linked $kind "$folder/$kind/$program"
    done
  done
  exit
fi

needs autoconf autoconf
mkdir "$folder/link_lines"
cp "$here"/link_lines/* "$folder/link_lines"
cp "$here"/consumer.c "$here"/gasnet_client.c "$folder"
(cd "$folder/link_lines" && autoreconf --install)
grep -q 'PKG_CHECK_MODULES' "$folder/link_lines/configure" && echo "pkg.m4 is not installed" && exit 77
for kind in shared alone; do
  options=(LDFLAGS="-Wl,-rpath,$libdir")
  [ $kind = shared ] || options=(LDFLAGS=-static PKG_CONFIG="pkg-config --static")
  mkdir "$folder/$kind" && cd "$folder/$kind"
  ../link_lines/configure "${options[@]}"
  make
  for program in cache gasnet; do
    linked $kind $program
    timeout "$(patiently 60)" ./$program
  done
done
