#!/usr/bin/env python3
"""The upstream CPU tests on stock SGLang, with the plugin, and on the patched tree.

    python tools/three_trees.py

Every test must fail on stock and pass with the plugin and with the diffs. Exit
status 1 where that is not so.
"""

import sys

from sglang_ppfix.patches.package import installed
from sglang_ppfix.patches.trial import cpu_tests, patched, run, upstream_tests

TREES = ("stock", "plugin", "patched")


def main() -> int:
    """Entry point; returns the exit status."""
    package = installed()
    tests = upstream_tests()
    if tests is None:
        sys.exit("this needs a checkout: an installed wheel carries no tests")
    wrong = 0
    with patched(package, package.release()) as tree:
        for test in cpu_tests(tests):
            outcomes = {
                "stock": run(test),
                "plugin": run(test, plugin=True),
                "patched": run(test, tree),
            }
            print(f"{test.relative_to(tests)}, sglang {package.release()}")
            for name in outcomes["stock"].tests:
                failed = [tree for tree in TREES if name in outcomes[tree].failed]
                wrong += failed != ["stock"]
                states = ", ".join(
                    f"{tree} {'red' if tree in failed else 'green'}" for tree in TREES
                )
                print(f"  {name}: {states}")
                for tree in failed:
                    print(f"    {tree}: {outcomes[tree].failed[name]}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
