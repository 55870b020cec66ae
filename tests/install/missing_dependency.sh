#!/usr/bin/env bash
# missing_dependency.sh CMAKE SOURCE BUILD: configures with each dependency hidden and checks that the message
# names Debian's package and the option that removes the dependency.
set -euo pipefail
cmake=$1 source=$2 build=$3

# expect_message TEXT [CMAKE OPTIONS...]: the configuration fails and prints TEXT.
expect_message() {
  local text=$1 output
  shift
  rm -rf "$build"
  if output=$("$cmake" -S "$source" -B "$build" -G Ninja "$@" 2>&1); then
    echo "configured although something is missing: $*" && exit 1
  fi
  # cmake wraps the message at any blank.
  if ! tr -s ' \n' '  ' <<<"$output" | grep -qF -- "$text"; then
    echo "'$text' is missing in the output: $output" && exit 1
  fi
}

PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH='' expect_message 'apt-get install liburing-dev'
expect_message 'apt-get install libbenchmark-dev' -DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON
expect_message '-DHYDRANT_BUILD_BENCHES=OFF' -DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON
expect_message 'apt-get install libcli11-dev' -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
expect_message 'apt-get install libcli11-dev' -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DHYDRANT_BUILD_TOOLS=OFF
expect_message 'apt-get install nlohmann-json3-dev' -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
expect_message 'apt-get install libgtest-dev libgmock-dev' -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
rm -rf "$build"
