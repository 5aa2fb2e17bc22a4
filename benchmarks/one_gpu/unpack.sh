# Sourced on a machine without a network, in the root of the tree: unpacks what
# build_site.sh packed, and lets Python find it.
packed=$PWD/.one_gpu
work=/tmp/ppfix-one-gpu
mkdir -p "$work"
[ -f "$work/unpacked" ] || { tar xJf "$packed/site312.tar.xz" -C "$work" && touch "$work/unpacked"; } || exit
rm -rf "$work/plugin"
python3 -m zipfile -e "$packed"/sglang_ppfix-*.whl "$work/plugin" || exit
export PYTHONPATH=$work/plugin:$work/site312 PYTHONUNBUFFERED=1
PPFIX_COMMIT=$(cat "$packed/commit")
export PPFIX_COMMIT
echo "unpacked after ${SECONDS} s"
