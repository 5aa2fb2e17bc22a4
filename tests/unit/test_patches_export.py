"""Mails, tests and PR text. Each test names the wrong change that it catches."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from patches_site import NEWEST, small_package

import sglang_ppfix
from sglang_ppfix.cli import main
from sglang_ppfix.patches import PatchSetError, folder
from sglang_ppfix.patches.export import export
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.mail import FIELDS, read_mail
from sglang_ppfix.patches.pr_text import pr_text
from sglang_ppfix.patches.trial import upstream_tests

SOURCE = Path(sglang_ppfix.__file__).parent


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "out"
    return export(NEWEST, out)


def git(where, *words):
    """Run git as nobody in particular, without anybody's configuration."""
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *words], cwd=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, exported):
    """A git tree as SGLang's, from the wheel, with the exported mails applied."""
    root = tmp_path_factory.mktemp("sglang-repo")
    small_package(root / "python")
    git(root, "init", "--quiet")
    git(root, "add", "--all", "--force")
    git(root, "commit", "--quiet", "--message", "base")
    git(root, "tag", "base")
    git(root, "am", *(str(path) for path in exported if path.suffix == ".patch"))
    return root


def test_git_am_takes_the_mails(checkout, exported):
    """Catches a hunk, a path or an index line that git does not accept, and trailing
    spaces in what is added."""
    subjects = git(checkout, "log", "--format=%s", "--reverse", "base..").splitlines()
    assert subjects[:-1] == [mail.subject for mail in series(NEWEST)]
    assert git(checkout, "diff", "--check", "base..") == ""
    assert git(checkout, "status", "--porcelain") == ""
    assert len(exported) == len(subjects) + 1


def test_the_tests_come_along_unchanged(checkout):
    """Catches a file of tests that is left out, or that differs in a byte."""
    tests = upstream_tests()
    ours = sorted(path for path in (tests / "test").rglob("*.py"))
    assert ours
    for path in ours:
        there = checkout / path.relative_to(tests)
        assert there.read_bytes() == path.read_bytes()


def test_every_commit_compiles(checkout):
    """Catches a diff that needs a later one of the series."""
    for commit in git(checkout, "rev-list", "--reverse", "base..").split():
        git(checkout, "checkout", "--quiet", commit)
        for path in git(checkout, "diff", "--name-only", "base", "HEAD").splitlines():
            compile((checkout / path).read_text(), path, "exec")


@pytest.mark.parametrize("release", releases(), ids=str)
def test_mails_are_dep3(release):
    """Catches a mail without its reasons, with long lines, or not in ASCII."""
    for mail in series(release):
        assert set(FIELDS) <= set(mail.fields)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", mail.fields["Last-Update"])
        message = mail.text.partition("\ndiff --git ")[0]
        assert message.isascii()
        assert max(map(len, message.splitlines())) < 80
        assert "[" not in mail.subject, "git am cuts brackets off"


def test_comments_are_short_and_ascii():
    """Catches what SGLang's comment rules refuse in a review."""
    for mail in series(NEWEST):
        added = [line[1:] for line in mail.diff.splitlines() if line.startswith("+")]
        assert all(line.isascii() for line in added)
        assert all(len(line) <= 88 for line in added)
        text = "\n".join(added)
        assert not re.search(r"(?:^ *#.*\n){4}", text, re.MULTILINE)
        assert not re.search(r"\b(getattr|hasattr)\(|\bArgs:|\bReturns:|TODO", text)


def test_out_must_be_empty(tmp_path, capsys):
    """Catches an export over somebody's files."""
    (tmp_path / "mine").touch()
    assert main(["patches", "export", "--out", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def lab_result(**changes):
    """A result as the lab writes it."""
    row = {
        "clients": 8,
        "stock_tok_s": 20.04,
        "plugin_tok_s": 37.96,
        "ratio": 1.894,
        "outputs_identical": True,
    }
    return {
        "what": "sglang-ppfix lab: real SGLang, emulated devices on the CPU",
        "machine": {"sglang": "0.5.23"},
        "configuration": {
            "pp_size": 4,
            "max_running_requests": 32,
            "async_depth": 0,
            "profile": {"name": "20+10b"},
            "arrival": "burst",
        },
        "rows": [row, {**row, "clients": 16, "outputs_identical": False}],
        **changes,
    }


def one_gpu_result():
    """A result as the benchmark on one GPU writes it."""
    pairs = {"ratio": 1.3912, "ci95": [1.31, 1.47], "pairs": [1.4], "verdict": ""}
    arms = {
        "stock": {"tok_s": 201.5},
        "balanced": {"tok_s": 280.3, "over_stock": pairs},
    }
    return {
        "case": "steep-pp4",
        "shape": {"says": "MoE, 128 experts"},
        "placement": "4 stages on one H200",
        "machine": {"sglang": "0.5.17"},
        "loads": [{"load": "burst", "clients": 8, "arms": arms}],
        "greedy": [{"clients": 8, "arm": "balanced", "identical": 7}],
    }


def test_pr_text_is_filled_from_results(tmp_path):
    """Catches figures that are mixed up, and an emulated one that is not called so."""
    (tmp_path / "lab.json").write_text(json.dumps(lab_result()))
    (tmp_path / "gpu.json").write_text(json.dumps(one_gpu_result()))
    (tmp_path / "other.json").write_text(json.dumps({"schema_version": 9}))
    text = pr_text(NEWEST, series(NEWEST), tmp_path)
    assert "| 8 | 20.0 | 38.0 | 1.89 | yes |" in text
    assert "Emulated stage time on CPU" in text
    assert "| burst | 8 | 201.5 | 280.3 | 1.39 | 1.31 to 1.47 |" in text
    assert "15 of 32 identical" in text
    assert "ratios run from 1.39 to 1.89" in text
    for section in ("Motivation", "Modifications", "Accuracy Tests", "Checklist"):
        assert f"\n## {section}\n" in text
    assert "$MODEL" in text
    assert "${" not in text


def test_pr_text_without_results(tmp_path):
    """Catches an empty section, or a claim, where nothing was measured."""
    text = pr_text(NEWEST, series(NEWEST), tmp_path)
    assert text.count("no results yet") == 2
    assert "- [ ] Provide throughput" in text


def test_a_broken_result_is_named(tmp_path):
    """Catches a result that is skipped, or a traceback, when its format changed."""
    broken = lab_result(rows=[{"clients": 8}])
    (tmp_path / "lab.json").write_text(json.dumps(broken))
    with pytest.raises(PatchSetError, match=r"lab\.json is not a result: KeyError"):
        pr_text(NEWEST, series(NEWEST), tmp_path)


def test_a_mail_must_be_whole(tmp_path):
    """Catches a series whose mails lose their reasons or their diff."""
    good = series(NEWEST)[0].text
    path = tmp_path / "x.patch"
    with pytest.raises(PatchSetError, match="named in its series but missing"):
        read_mail(path)
    path.write_text(good.replace("Forwarded: no\n", ""))
    with pytest.raises(PatchSetError, match="lacks the field Forwarded"):
        read_mail(path)
    path.write_text(good.partition("\ndiff --git ")[0])
    with pytest.raises(PatchSetError, match="holds no diff"):
        read_mail(path)


def test_an_unknown_release_names_the_known_ones():
    """Catches a bare FileNotFoundError."""
    with pytest.raises(PatchSetError, match=rf"no series for sglang 0\.4.*{NEWEST}"):
        series(Version("0.4"))


def test_list(capsys):
    """Catches a release or a diff that is not shown."""
    assert main(["patches", "list"]) == 0
    shown = capsys.readouterr().out
    for release in releases():
        assert f"sglang {release}\n" in shown
    for mail in series(NEWEST):
        assert mail.subject in shown


def test_without_patches(monkeypatch, tmp_path, capsys):
    """Catches a traceback in an installation that carries none."""
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "a" / "b" / "folder.py"))
    assert main(["patches", "list"]) == 2
    assert "carries no patches" in capsys.readouterr().err


def test_an_installed_wheel_carries_them(tmp_path):
    """Catches a lookup that works in a checkout only: a wheel has them as _patches,
    and has neither tests nor results."""
    package = tmp_path / "site" / "sglang_ppfix"
    shutil.copytree(
        SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "_patches")
    )
    shutil.copytree(SOURCE.parent / "patches", package / "_patches")
    code = "import sys; from sglang_ppfix.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [
            *(sys.executable, "-c", code, "patches", "export"),
            *("--out", str(tmp_path / "out")),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names == [
        "0001-derive-cap.patch",
        "0002-balanced-filling.patch",
        "0003-memory-all-slots.patch",
        "0004-true-totals.patch",
        "PR.md",
    ]
