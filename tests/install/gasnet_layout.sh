#!/usr/bin/env bash
# gasnet_layout.sh CC PREFIX HERE FOLDER: checks the parts of an installation that build systems of GASNet's
# clients use, beside those of gasnet_client.sh: flags if no other package is known, libraries alone, texts in
# programs, launchers.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../support/patience.sh"
cc=$1 prefix=$2 here=$3 folder=$4
rm -rf "$folder" && mkdir -p "$folder"
failures=0
fail() { echo "FAILED: $*" && failures=$((failures + 1)); }
# has WORD TEXT WHERE
has() { case " $2 " in *"$1"*) ;; *) fail "$3 has no '$1': $2" ;; esac; }
lacks() { case " $2 " in *"$1"*) fail "$3 has '$1': $2" ;; esac; }

# No other .pc file is found: only a static link needs libibverbs, liburing or their headers.
unset PKG_CONFIG_PATH
PKG_CONFIG_LIBDIR=$(dirname "$(find "$prefix" -name hydrant.pc)")
export PKG_CONFIG_LIBDIR
for name in firehose firehose_nohooks hydrant hydrant_nohooks gasnet-smp-seq gasnet-ibv-par \
  gasnet_tools-seq; do
  cflags=$(pkg-config --cflags "$name") && libs=$(pkg-config --libs "$name") ||
    { fail "$name.pc" && continue; }
  lacks libnl "$cflags" "$name, --cflags"
  for word in -libverbs -luring -lstdc++; do lacks "$word" "$libs" "$name, --libs"; done
  pkg-config --static --libs "$name" >/dev/null || fail "$name.pc, --static"
done

# The libraries alone: the program finds them, and the hooks come first.
for name in gasnet-smp-seq gasnet-ibv-par; do
  network=${name#gasnet-} mode=${name##*-}
  libs=$(pkg-config --variable=GASNET_LIBS "$name")
  has -Wl,-rpath, "$libs" "GASNET_LIBS of $name.pc"
  compiler=$(pkg-config --variable=GASNET_CC "$name")
  [ "${compiler:0:1}" = / ] || fail "GASNET_CC of $name.pc is no whole path: $compiler"
  make_libs=$(make -s -f - libs <<MAKE
include $prefix/include/${network%-*}-conduit/${network}.mak
libs: ; @echo '\$(GASNET_LIBS)'
MAKE
  )
  has -Wl,-rpath, "$make_libs" "GASNET_LIBS of ${network}.mak"
  # A -static-pie program with a search path ends in SIGSEGV inside glibc.
  for text in "$(pkg-config --static --define-variable=HYDRANT_RPATH= --libs "$name")" \
    "$(make -s -f - libs <<MAKE
include $prefix/include/${network%-*}-conduit/${network}.mak
LDFLAGS = -static-pie
libs: ; @echo '\$(GASNET_LDFLAGS) \$(GASNET_LIBS)'
MAKE
  )"; do
    case $text in *-rpath*) fail "GASNET_LIBS of $name for -static-pie: $text" ;; esac
  done
  for text in "$libs" "$make_libs"; do
    case $text in "-L$prefix/"*) ;; *) fail "GASNET_LIBS does not begin with the folder: $text" ;; esac
    has " -lm " " $text " "GASNET_LIBS of $name"
  done
  for word in -libverbs -luring -lstdc++ --wrap; do
    lacks "$word" "$make_libs" "GASNET_LIBS of ${network}.mak"
  done
  for kind in pc mak; do
    program=$folder/$name-$kind
    [ $kind = pc ] || libs=$make_libs
    # shellcheck disable=SC2046,SC2086  # the flags are words
    "$cc" $(pkg-config --cflags "$name") "$here/gasnet_client.c" "$here/gasnet_names.c" $libs -o "$program"
    first=$(readelf -dW "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | head -n 1)
    [ "$first" = libfirehose_hooks.so.0 ] || fail "$program needs $first before the hooks"
  done

  # Texts that scripts search for: each occurs once, although two objects have them.
  strings -a "$program" | grep '^\$GASNet' | sort >"$folder/idents"
  twice=$(uniq -d "$folder/idents")
  [ -z "$twice" ] || fail "$program has these more than once: $twice"
  for key in ThreadModel Segment ConduitName Config EXAPIVersion APIVersion CoreLibraryName \
    CoreLibraryVersion ExtendedLibraryName ExtendedLibraryVersion PSHM DefaultMaxSegsizeStr \
    ToolsThreadModel ToolsConfig BuildId ConfigureArgs SystemTuple CompilerID; do
    grep -q "^\$GASNet$key: .* \\\$\$" "$folder/idents" || fail "$program has no \$GASNet$key"
  done

  # The names and options of GASNet's launcher.
  run=$prefix/bin/gasnetrun_${network%-*}
  wanted=$'rank 0 of 2: 49\nrank 1 of 2: 64'
  for options in "-n 2" "-np 2" "-np2 -E PATH,HOME -c 1 -N 1 -spawner=fork --"; do
    # shellcheck disable=SC2086
    output=$(timeout "$(patiently 60)" "$run" $options "$program" | sort) || fail "$run $options: status $?"
    [ "$output" = "$wanted" ] || fail "$run $options: $output"
  done
  (cd "$folder" && timeout "$(patiently 60)" "$run" -n 2 "$name-mak" >/dev/null) ||
    fail "$run: a program of this folder"
  output=$("$run" -t -n 2 "$program" x y) || fail "$run -t"
  has "hydrant-run -n 2 -- $program x y" "$output" "$run -t"
  output=$("$run" --help 2>/dev/null) || fail "$run --help: status $?"
  has "usage: ${run##*/} -n" "$output" "$run --help"
  case $network in
    smp*) several="compile with the files of ibv-conduit and start the program" ;;
    *) several="start the program with mpirun" ;;
  esac
  has "for several machines $several" "$output" "$run --help"
  for options in "" "-n" "-n 0" "-n x" "-n 2" "-n 2 -z" "-n 2 -N 2" "-n 2 -c $program"; do
    # shellcheck disable=SC2086
    output=$("$run" $options 2>&1 </dev/null) && fail "$run $options: status 0"
    [ $? -eq 2 ] || fail "$run $options: another status than 2"
    has "Run with --help" "$output" "$run $options"
  done
done

# With -static in the makefile's flags, and without the hooks.
cat >"$folder/Makefile" <<MAKE
include $prefix/include/smp-conduit/smp-seq.mak
$folder/%: $here/gasnet_client.c
	\$(GASNET_CC) \$(GASNET_CPPFLAGS) \$(GASNET_CFLAGS) \$< \$(GASNET_LDFLAGS) -o \$@ \$(GASNET_LIBS)
MAKE
make -s -f "$folder/Makefile" MANUAL_LDFLAGS=-static "$folder/made_static"
timeout "$(patiently 60)" "$prefix/bin/gasnetrun_smp" -n 2 "$folder/made_static" >/dev/null ||
  fail "made_static"
make -s -f "$folder/Makefile" HYDRANT_HOOKS= "$folder/made_nohooks"
if readelf -dW "$folder/made_nohooks" | grep -q hooks; then fail "made_nohooks needs the hooks"; fi

# A program compiled for one node fails on two, and always has one neighbourhood.
one=$folder/gasnet-smp-seq-pc both=$folder/gasnet-ibv-par-pc
if output=$(timeout "$(patiently 60)" "$prefix/bin/hydrant-run" -n 2 --nodes 2 "$one" 2>&1); then
  fail "$one ran on two nodes"
fi
has "compiled for one (GASNET_CONDUIT_SMP): compile it with pkg-config's gasnet-ibv-seq" "$output" "$one"
output=$(timeout "$(patiently 60)" "$prefix/bin/hydrant-run" -n 2 --nodes 2 "$both" 2>&1) || true
lacks GASNET_CONDUIT_SMP "$output" "$both"
export GASNET_SUPERNODE_MAXSIZE=1
output=$(timeout "$(patiently 60)" "$prefix/bin/hydrant-run" -n 2 "$one" 2>&1) || fail "$one: $output"
[ "$(grep -c 'GASNET_SUPERNODE_MAXSIZE=1 is ignored' <<<"$output")" = 1 ] || fail "$one: $output"
output=$(timeout "$(patiently 60)" "$prefix/bin/hydrant-run" -n 2 "$both" 2>&1) || fail "$both: $output"
lacks ignored "$output" "$both"

[ -f "$(find "$prefix/share/doc" -name README.md | head -n 1)" ] || fail "share/doc has no README.md"
exit $((failures != 0))
