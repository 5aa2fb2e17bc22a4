"""Write ``docs/releases.md``: every tested release, and what was shown of it.

    python tools/release_matrix.py            # write the page
    python tools/release_matrix.py --check    # is it what would be written?

The contract column is found anew, from the wheels. The lab columns come from
``docs/releases.json``, which takes up what ``pytest -m releases`` left in the cache.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import wheels
from packaging.version import Version

from sglang_ppfix.compat.contract import BODIES
from sglang_ppfix.compat.drift import search
from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.parameters import SINCE
from sglang_ppfix.compat.release import supported_range
from sglang_ppfix.doctor.targets import hooks_of

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA = DOCS / "releases.md", DOCS / "releases.json"
TEMPLATE = DOCS / "releases.template.md"


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    lab = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
    if not args.check:
        lab.update(_from_cache())
    try:
        page = render(lab)
    except wheels.Offline as error:
        print(f"release_matrix: {error}", file=sys.stderr)
        return 2
    if args.check:
        same = PAGE.exists() and PAGE.read_text("utf-8") == page
        print(f"{PAGE.name} is {'up to date' if same else 'out of date'}")
        return 0 if same else 1
    ordered = dict(sorted(lab.items(), key=lambda item: Version(item[0])))
    DATA.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")
    return 0


def render(lab: dict[str, Any]) -> str:
    """The page.

    Raises:
        Offline: a wheel is neither in the cache nor in the registry.
    """
    rows = [_row(release, lab.get(str(release))) for release in known().releases]
    head = ("SGLang", "contract", "hooks", "lab", "outputs right", "slots", "retracted")
    table = [head, ("---",) * len(head), *rows]
    later = [f"- `{name}`: from {since}" for name, since in sorted(SINCE.items())]
    text = TEMPLATE.read_text("utf-8")
    for word, value in {
        "RANGE": str(supported_range()),
        "BODIES": str(len(BODIES)),
        "TABLE": "\n".join(f"| {' | '.join(row)} |" for row in table),
        "LATER": "\n".join(later),
    }.items():
        text = text.replace(f"{{{{{word}}}}}", value)
    return text


def _row(release: Version, lab: dict[str, Any] | None) -> tuple[str, ...]:
    hooks = hooks_of(release)
    found = search(wheels.tree(release), hooks, release)
    contract = "as expected" if not found else f"{len(found)} drifted"
    if lab is None:
        return (str(release), contract, str(len(hooks)), "not run", "", "", "")
    return (
        str(release),
        contract,
        str(len(hooks)),
        f"runs (Python {lab['python']}, torch {lab['torch']})",
        f"{lab['outputs_right'] + sum(lab['slots'])}, {lab['chunked']} of them chunked",
        "/".join(map(str, lab["slots"])),
        f"{lab['retractions']} times",
    )


def _from_cache() -> dict[str, Any]:
    found = {}
    for path in (wheels.cache() / "releases").glob("*.json"):
        content = json.loads(path.read_text("utf-8"))
        found[content.pop("release")] = content
    return found


if __name__ == "__main__":
    sys.exit(main())
