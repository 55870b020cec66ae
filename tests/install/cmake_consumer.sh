#!/usr/bin/env bash
# cmake_consumer.sh CMAKE SOURCE BUILD [CMAKE OPTIONS...]: configures and builds an outside project with
# BUILD_SHARED_LIBS on, then off, runs its programs, and checks that Hydrant::firehose was the requested
# library and brought the hooks to programs.
set -euo pipefail
cmake=$1 source=$2 build=$3
shift 3

is_shared() { readelf -d "$1" | grep -q 'NEEDED.*libfirehose\.so\.0\]'; }

# build_and_run ON|OFF shared|static [CMAKE OPTIONS...]
build_and_run() {
  local shared=$1 wanted=$2 found=static program
  shift 2
  "$cmake" -S "$source" -B "$build" -G Ninja -DBUILD_SHARED_LIBS="$shared" "$@"
  "$cmake" --build "$build" --parallel 2
  for program in consumer consumer_static; do "$build/$program"; done
  for program in covered covered_by_STATIC; do "$build/$program" watched; done
  for program in covered_nohooks covered_by_SHARED; do "$build/$program" checked; done
  if is_shared "$build/consumer"; then found=shared; fi
  if [ $found != "$wanted" ]; then echo "Hydrant::firehose is $found, not $wanted" && exit 1; fi
  if is_shared "$build/consumer_static"; then echo "firehose_static is shared" && exit 1; fi
}

rm -rf "$build"
build_and_run ON shared "$@"
build_and_run OFF static "$@"
