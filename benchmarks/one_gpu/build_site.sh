#!/bin/bash
# Packs what a machine with Python 3.12 and torch 2.11+cu130 lacks to run SGLang 0.5.17
# and this plugin, for machines without a network:
#   .one_gpu/site312.tar.xz   wheels of site.txt, unpacked and slimmed (about 53 MiB)
#   .one_gpu/*.whl            the plugin as of a commit (default HEAD)
# Usage: benchmarks/one_gpu/build_site.sh [--plugin-only] [COMMIT]
# Needs bash, git, pip, unzip, strip, xz, and 2 GB under build/ (ignored by git).
set -eu
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
out=$root/.one_gpu
build=$root/build/one_gpu
only=
if [ "${1:-}" = --plugin-only ]; then only=1; shift; fi
mkdir -p "$out" "$build/whl"

# The plugin from a commit, never from a working tree that others are writing in.
rm -rf "$build/source" "$out"/*.whl
mkdir -p "$build/source"
git -C "$root" archive "${1:-HEAD}" | tar xf - -C "$build/source"
pip wheel -q --no-deps -w "$out" "$build/source"
git -C "$root" rev-parse "${1:-HEAD}" > "$out/commit"
[ -z "$only" ] || { ls -l "$out"; exit; }

platforms=
for tag in manylinux_2_39 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 \
  manylinux_2_26 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux_2_12 \
  manylinux_2_5 manylinux1; do
  platforms="$platforms --platform ${tag}_x86_64"
done
# shellcheck disable=SC2086
pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  $platforms -d "$build/whl" -r "$(dirname "$0")/site.txt"

site=$build/site312
rm -rf "$site"
mkdir -p "$site"
for wheel in "$build"/whl/*.whl; do
  case $wheel in
    *sglang_kernel*) # only the kernels for Hopper
      unzip -q -o "$wheel" 'sgl_kernel/*.py' 'sgl_kernel/sm90/*' \
        'sglang_kernel-*.dist-info/*' 'triton_kernels/*' -d "$site" ;;
    *flashinfer*) # its headers are compiled only for kernels that are not used
      unzip -q -o "$wheel" -x 'flashinfer/data/cutlass/*' 'flashinfer/data/cccl/*' \
        'flashinfer/data/spdlog/*' -d "$site" ;;
    *) unzip -q -o "$wheel" -d "$site" ;;
  esac
done
rm -rf "$site/sglang/multimodal_gen" "$site/xgrammar/lib"
find "$site/xgrammar" -name '*.so' -exec strip --strip-unneeded {} +
tar cf - -C "$build" site312 | xz -T2 -4 > "$out/site312.tar.xz"
ls -l "$out"
