#!/usr/bin/env bash
# source_tree.sh CXX PREFIX CLIENT FOLDER: uses share/hydrant/gasnet-tree as UPC++'s configure and makefiles
# use GASNet's sources: recognizes it, reads its version, configures it twice, lets config.status fill in a
# makefile, installs it, and compiles and runs CLIENT by the fragments that were installed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../support/patience.sh"
cxx=$1 prefix=$(readlink -f "$2") client=$3 folder=$4
rm -rf "$folder" && mkdir -p "$folder/work" && cd "$folder/work"
fail() { echo "FAILED: $*" && exit 1; }

tree=$prefix/share/hydrant/gasnet-tree
for file in gasnet_config.h.in gasnetex.h gasnet.h docs/GASNet-EX.txt configure; do
  [ -r "$tree/$file" ] || fail "no $file"
done
while read -r link; do
  case $(readlink "$link") in /*) fail "$link is not relative" ;; esac
  case $(readlink -f "$link") in "$prefix"/*) ;; *) fail "$link leaves the installation" ;; esac
done < <(find "$tree" -type l)
for part in MAJOR MINOR; do
  line=$(grep "EX_SPEC_VERSION_$part" "$tree/docs/"GASNet-EX.* | head -n 1)
  [[ $line =~ \ [0-9]+ ]] || fail "no version: $line"
done
family=$(printf '%s\n' '#include <gasnet_portable_platform.h>' '= PLATFORM_COMPILER_FAMILYNAME =' |
  "$cxx" -E -x c++ -I"$tree/other" - | tail -n 1)
[[ $family =~ ^=\ [A-Z]+\ =$ ]] || fail "no name of the compiler: $family"

echo '# @CONDUITS@, @CC_FAMILY@ and @CXX_FAMILY@, @AR@, @GASNET_THREAD_LIBS@' >fragment.in
for codemode in opt debug; do
  dir=gasnet.$codemode
  option=--enable-debug
  [ $codemode = debug ] || option=--disable-debug
  mkdir $dir
  (cd $dir && CXX=$cxx "$tree/configure" --enable-smp --with-cflags="-DFROM_C" \
    --with-cxxflags="-DFROM='C++ flags'" --disable-parsync --enable-par --disable-segment-everything $option)
  [ -f $dir/gasnet_config.h ] || fail "$dir has no gasnet_config.h"
  CONDUITS=
  eval "$(make -s -C $dir echovar VARNAME=CONDUITS)"
  [ "$CONDUITS" = "smp ibv" ] || fail "networks: $CONDUITS"
  for network in $CONDUITS; do
    make -s -C "$dir/$network-conduit" "$network-seq.mak" seq par MANUAL_CFLAGS=-O1
    [ -x "$dir/$network-conduit/contrib/gasnetrun_$network" ] || fail "$dir has no gasnetrun_$network"
  done
  (cd $dir && CONFIG_COMMANDS='' CONFIG_HEADERS='' CONFIG_FILES=out.txt:../fragment.in ./config.status)
  grep -qxE '# smp ibv, (GNU|Clang) and (GNU|Clang), ar, -lpthread' $dir/out.txt ||
    fail "config.status: $(<$dir/out.txt)"
  make -s -C $dir all
  make -s -C $dir install prefix="$PWD/upcxx/$dir"
  [ -e "upcxx/$dir/bin/gasnetrun_smp" ] || fail "no launcher was installed"
  debug=0
  [ $codemode = opt ] || debug=1
  cat >$codemode.mak <<MAKE
include $PWD/upcxx/$dir/include/smp-conduit/smp-par.mak
client:
	\$(GASNET_CXX) \$(GASNET_CXXCPPFLAGS) \$(GASNET_CXXFLAGS) -x c++ $client -x none \$(GASNET_LDFLAGS) \
	  -o client \$(GASNET_LIBS)
check:
	test "\$(GASNET_CXX)" = "$cxx"
	test $debug = \$(words \$(filter -DGASNET_DEBUG%,\$(GASNET_CXXCPPFLAGS)))
MAKE
  make -s -f $codemode.mak check
done

make -s -f debug.mak client
output=$(timeout "$(patiently 60)" upcxx/gasnet.debug/bin/gasnetrun_smp -n 2 client | sort)
[ "$output" = $'rank 0 of 2: 49\nrank 1 of 2: 64' ] || fail "the client printed $output"
