#!/usr/bin/env bash
# other_layouts.sh HOOKS OTHER_LIBC PRINTER TESTS: the hooks beside a malloc whose blocks look as those of
# another libc. Known layouts are served, and their mappings are found from begin to end; for others the hooks
# say what is not as they assume.
set -euo pipefail
export LD_PRELOAD="$1 $2"
printer=$3
tests=$4
failures=0

# says LAYOUT TEXT: the printer's line contains TEXT.
says() {
  local line
  line=$(LAYOUT=$1 "$printer") || line="status $?"
  if [[ $line != *"$2"* ]]; then
    echo "LAYOUT=$1: '$line' does not contain '$2'"
    failures=$((failures + 1))
  fi
}

selection="MallocHooks.*Block*:MallocHooks.EveryMallocFunction*"
for layout in old new; do
  says $layout hooked
  if ! LAYOUT=$layout "$tests" --gtest_brief=1 --gtest_filter="$selection"; then
    echo "LAYOUT=$layout: tests failed"
    failures=$((failures + 1))
  fi
done
for layout in long early; do
  says $layout 'the words below a block that is a mapping of its own say where that begins and ends'
done
says sizes 'it is not so that the word below a small block is its size'
says sizes "(version $(LD_PRELOAD='' getconf GNU_LIBC_VERSION | cut -d ' ' -f 2))"
exit $((failures > 0))
