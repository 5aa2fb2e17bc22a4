#!/bin/bash
# The lab's measurements side by side on a machine with many cores and no network, a few
# cores for each; unpacks what benchmarks/one_gpu/build_site.sh packed.
# Usage, in the root of the tree: benchmarks/auto/on_device.sh NAME=CORES=COMMAND ...
#   benchmarks/auto/on_device.sh "host=0-3=measure.py host FILE --rounds 4"
# COMMAND is a script of benchmarks/auto, FILE is replaced. Results go to $OUT.
set -u
export OUT=${OUT:-$PWD/out/auto}
mkdir -p "$OUT"
. benchmarks/one_gpu/unpack.sh
export CUDA_VISIBLE_DEVICES=
pids=
for run in "$@"; do
  name=${run%%=*} rest=${run#*=}
  cores=${rest%%=*} command=${rest#*=}
  # shellcheck disable=SC2086
  taskset -c "$cores" timeout -k 5 "${LIMIT:-540}" \
    python3 benchmarks/auto/${command//FILE/$OUT/$name.json} > "$OUT/$name.log" 2>&1 &
  pids="$pids $!"
done
status=0
for pid in $pids; do wait "$pid" || status=1; done
echo "ended, ${SECONDS} s since the start"
exit $status
