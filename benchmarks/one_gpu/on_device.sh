#!/bin/bash
# On a machine without a network: unpack what build_site.sh packed, run cases in turn.
# Usage, in the root of the tree: benchmarks/one_gpu/on_device.sh CASE=SECONDS ...
# Results and logs go to $OUT (default: out/one_gpu).
set -u
packed=$PWD/.one_gpu
work=/tmp/ppfix-one-gpu
export OUT=${OUT:-$PWD/out/one_gpu}
mkdir -p "$work" "$OUT"
[ -f "$work/unpacked" ] || { tar xJf "$packed/site312.tar.xz" -C "$work" && touch "$work/unpacked"; } || exit
rm -rf "$work/plugin"
python3 -m zipfile -e "$packed"/sglang_ppfix-*.whl "$work/plugin" || exit
export PYTHONPATH=$work/plugin:$work/site312 PYTHONUNBUFFERED=1
PPFIX_COMMIT=$(cat "$packed/commit")
export PPFIX_COMMIT
echo "unpacked after ${SECONDS} s"
status=0
for run in "$@"; do
  python3 benchmarks/one_gpu/run.py --case "${run%%=*}" --seconds "${run##*=}" --out "$OUT" || status=1
  echo "${run%%=*} ended, ${SECONDS} s since the start"
done
exit $status
