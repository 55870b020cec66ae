# shellcheck shell=bash
# patiently SECONDS: SECONDS times HYDRANT_TEST_PATIENCE (a positive number, 1 if it is not set), for waits
# for what has to happen: timeout "$(patiently 60)" PROGRAM. To be read in with `.`.
patiently() {
  awk -v seconds="$1" -v times="${HYDRANT_TEST_PATIENCE:-1}" \
    'BEGIN { print seconds * (times > 0 ? times : 1) }'
}
