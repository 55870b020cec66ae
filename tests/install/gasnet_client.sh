#!/usr/bin/env bash
# gasnet_client.sh pkg_config|makefile CC CXX PREFIX HERE FOLDER: compiles the clients of GASNet's API with
# the installed build files, as the networks smp and ibv in each thread mode, in C and C++, runs each as a job
# of two ranks and searches the program for the ident strings.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../support/patience.sh"
method=$1 cc=$2 cxx=$3 prefix=$4 here=$5 folder=$6
mkdir -p "$folder"
run=$prefix/bin/hydrant-run
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hydrant.pc)")
export PKG_CONFIG_PATH
warnings="-pedantic -Wall -Wextra -Wstrict-prototypes -Werror"

# run_job PROGRAM NETWORK MODE
run_job() {
  local output ident
  output=$(timeout "$(patiently 60)" "$run" -n 2 "$1")
  [ "$(sort <<<"$output")" = $'rank 0 of 2: 49\nrank 1 of 2: 64' ] || { echo "$1: $output" && exit 1; }
  for ident in "GASNetConduitName: ${2^^}" "GASNetThreadModel: GASNET_${3^^}" \
    "GASNetConfig: (libgasnet.a) RELEASE=.*,CONDUIT=${2^^}(.*,THREADMODEL=${3^^},"; do
    grep -aq "\$$ident" "$1" || { echo "$1 has no \$$ident" && exit 1; }
  done
}

# with_pkg_config NAME PROGRAM SOURCE [COMPILER...]: -static if the program's name contains it
with_pkg_config() {
  local name=$1 program=$2 source=$3 static=()
  shift 3
  if [ "${program: -6}" = static ]; then static=(-static); fi
  # shellcheck disable=SC2046,SC2086  # the flags are words
  "$@" $warnings $(pkg-config --cflags "$name") "$source" "${static[@]}" \
    $(pkg-config ${static[0]:+--static} --libs "$name") -o "$program"
}

# with_makefile FRAGMENT PREFIX_OF_VARIABLES PROGRAM SOURCE
with_makefile() {
  cat >"$folder/Makefile" <<MAKE
include $1
$3: $4
	\$($2_CC) -std=c99 $warnings \$($2_CPPFLAGS) \$($2_CFLAGS) \$($2_DEVWARN_CFLAGS) -c -o $3.o $4
	\$($2_LD) \$($2_LDFLAGS) -o $3 $3.o \$($2_LIBS)
$3_cxx: $4
	\$($2_CXX) ${warnings/-Wstrict-prototypes/} \$($2_CPPFLAGS) \$($2_CXXFLAGS) -c -x c++ -o $3_cxx.o $4
	\$($2_CXX) \$($2_LDFLAGS) -o $3_cxx $3_cxx.o \$($2_LIBS)
MAKE
  rm -f "$3" "$3_cxx"
  make --no-print-directory -f "$folder/Makefile" "$3" "$3_cxx"
}

for network in smp ibv; do
  for mode in seq par parsync; do
    program=$folder/$network-$mode
    if [ "$method" = pkg_config ]; then
      with_pkg_config gasnet-$network-$mode "$program" "$here/gasnet_client.c" "$cc" -std=c99
      with_pkg_config gasnet-$network-$mode "$program-static" "$here/gasnet_client.c" "$cc" -std=c99
      run_job "$program-static" $network $mode
    else
      with_makefile "$prefix/include/$network-conduit/$network-$mode.mak" GASNET "$program" \
        "$here/gasnet_client.c"
      run_job "${program}_cxx" $network $mode
    fi
    run_job "$program" $network $mode
  done
done
for mode in seq par; do
  program=$folder/tools-$mode
  if [ "$method" = pkg_config ]; then
    with_pkg_config gasnet_tools-$mode "$program" "$here/tools_client.c" "$cc" -std=c99
  else
    with_makefile "$prefix/include/gasnet_tools-$mode.mak" GASNETTOOLS "$program" "$here/tools_client.c"
    "${program}_cxx"
  fi
  "$program"
done

# HYDRANT_INJECT's library is found beside libhydrant, or by the run path of a program with the archive.
if [ "$method" = pkg_config ]; then
  HYDRANT_INJECT=delay=1us run_job "$folder/smp-par" smp par
fi

# GASNet-1, in each mode; and without the names of GASNet's build: hydrant.pc, and the mode by hand. No mode,
# or two modes, is an error that names the cause.
if [ "$method" = pkg_config ]; then
  for mode in seq par parsync; do
    with_pkg_config gasnet-smp-$mode "$folder/gasnet1-$mode" "$here/gasnet1_client.c" "$cc" -std=c99
    timeout "$(patiently 60)" "$run" -n 2 "$folder/gasnet1-$mode" x
  done
  for macros in -DNONE "-DGASNET_SEQ -DGASNET_PAR"; do
    # shellcheck disable=SC2046,SC2086
    if output=$("$cc" $(pkg-config --cflags hydrant) $macros -fsyntax-only "$here/gasnet_client.c" 2>&1); then
      echo "compiled with $macros" && exit 1
    fi
    grep -q 'define exactly one of GASNET_SEQ' <<<"$output" || { echo "$output" && exit 1; }
  done
  warnings=${warnings/-Wstrict-prototypes/}
  with_pkg_config hydrant "$folder/plain" "$here/gasnet_client.c" "$cxx" -x c++ -DGASNET_PAR=1 \
    "-Wl,-rpath,$(pkg-config --variable=libdir hydrant)" -x none
  run_job "$folder/plain" smp par
fi
