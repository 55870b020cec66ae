#!/usr/bin/env bash
# install_tree.sh CMAKE BUILD PREFIX: installs BUILD elsewhere and moves the tree to PREFIX, so that a
# path of the place it was installed to does not go unnoticed.
set -euo pipefail
cmake=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.first"
"$cmake" --install "$build" --prefix "$prefix.first"
mv "$prefix.first" "$prefix"
