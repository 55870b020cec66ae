#!/usr/bin/env bash
# install_tree.sh CMAKE BUILD PREFIX: installs BUILD elsewhere and moves the tree to PREFIX, so that an
# absolute path of the first location in an installed file makes a test fail.
set -euo pipefail
cmake=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.first"
"$cmake" --install "$build" --prefix "$prefix.first"
mv "$prefix.first" "$prefix"
