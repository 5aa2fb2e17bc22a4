"""Run one file of upstream tests and write its outcome as JSON.

Runs in an interpreter of its own: ``trial_child.py TEST OUTCOME [plugins]``. Imports
nothing of ours; with ``plugins``, SGLang loads its plugins as a scheduler process does.
"""

import importlib.util
import json
import sys
import time
import unittest
from pathlib import Path


def main(test: str, outcome: str, plugins: bool) -> None:
    """Import the file, run its test cases, write what came out."""
    if plugins:
        import torch.distributed as dist

        # The ranks of a scheduler process find each other through this store.
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        from sglang.srt.plugins import load_plugins

        load_plugins()
    spec = importlib.util.spec_from_file_location("upstream_test", test)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    # Before the run: a suite forgets its cases on the way.
    names = [case.id().split(".", 1)[-1] for case in _flat(suite)]
    result = unittest.TestResult()
    start = time.monotonic()
    suite.run(result)
    reasons: dict[str, str] = {}
    for case, text in (*result.failures, *result.errors):
        # A subtest belongs to its test.
        name = getattr(case, "test_case", case).id().split(".", 1)[-1]
        reasons.setdefault(name, _reason(text))
    content = {
        "tests": names,
        "failed": reasons,
        "sglang": str(importlib.util.find_spec("sglang").origin),  # type: ignore[union-attr]
        "seconds": round(time.monotonic() - start, 2),
    }
    Path(outcome).write_text(json.dumps(content), encoding="utf-8")


def _reason(text: str) -> str:
    """The last line of the first exception that names one: CI retries hide it."""
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    named = [line for line in lines if line.partition(":")[0].endswith("Error")]
    return (named or lines)[0]


def _flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for case in suite:
        found += _flat(case) if isinstance(case, unittest.TestSuite) else [case]
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["plugins"])
