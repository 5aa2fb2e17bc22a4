"""What the series adds passes the formatters and linters of SGLang's pre-commit.

Its configuration is not in the wheel: isort (profile black), ruff for a few rules, and
``ruff format``, which every file that the series touches passes before it, too.
"""

import subprocess
import sys

import pytest
from patches_site import NEWEST, small_package

pytest.importorskip("ruff")

from sglang_ppfix.patches import strict
from sglang_ppfix.patches.folder import series
from sglang_ppfix.patches.trial import upstream_tests

CHECK = (
    *("check", "--isolated", "--output-format", "concise"),
    # isort's rules are I; the profile black is what ruff does by default.
    *("--select", "I,F401,F821,UP037"),
    *("--config", 'lint.isort.known-first-party=["sglang"]'),
)
FORMAT = ("format", "--isolated", "--check")


def ruff(folder, *words):
    """Findings of a folder, without its own place in them."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, "--no-cache", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout if done.returncode else ""


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    """The files of the newest release that the series touches, as it leaves them."""
    package = small_package(tmp_path_factory.mktemp("stock"))
    diffs = [(mail.path.name, mail.diff) for mail in series(NEWEST)]
    out = tmp_path_factory.mktemp("patched")
    for path, text in strict.apply(diffs, package.read).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text)
        if package.read(path) is not None:
            (out / "before" / path).parent.mkdir(parents=True, exist_ok=True)
            (out / "before" / path).write_text(package.read(path))
    return out


@pytest.mark.parametrize("words", [CHECK, FORMAT], ids=["check", "format"])
def test_the_series_adds_no_finding(patched, words):
    """Catches an import out of order or unused, and a line to reformat."""
    assert ruff(patched / "before", *words) == "", "not upstream's rules"
    assert ruff(patched / "sglang", *words) == ""


@pytest.mark.parametrize("words", [CHECK, FORMAT], ids=["check", "format"])
def test_the_tests_have_none(words):
    """Catches the same in the mail with the tests."""
    assert ruff(upstream_tests(), *words) == ""


def test_findings_are_found(tmp_path):
    """Catches rules that are not selected, or output that is thrown away."""
    (tmp_path / "x.py").write_text("import sys\nimport os\n\nx = [1,2]\nprint(os)\n")
    said = ruff(tmp_path, *CHECK)
    assert "I001" in said
    assert "F401" in said
    assert "x.py" in ruff(tmp_path, *FORMAT)
