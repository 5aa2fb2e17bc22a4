#!/bin/bash
# On a machine without a network: unpack what build_site.sh packed, run cases in turn.
# Usage, in the root of the tree: benchmarks/one_gpu/on_device.sh CASE=SECONDS ...
# Results and logs go to $OUT (default: out/one_gpu).
set -u
export OUT=${OUT:-$PWD/out/one_gpu}
mkdir -p "$OUT"
. benchmarks/one_gpu/unpack.sh
status=0
for run in "$@"; do
  python3 benchmarks/one_gpu/run.py --case "${run%%=*}" --seconds "${run##*=}" --out "$OUT" || status=1
  echo "${run%%=*} ended, ${SECONDS} s since the start"
done
exit $status
