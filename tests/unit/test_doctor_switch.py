"""The doctor on flag, settings, entry point and exclusions."""

import pytest
from doctor_site import Site, only


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.add_sglang("0.5.23")
    return made


@pytest.mark.parametrize(("value", "state"), [("", "warn"), ("0", "warn"), ("1", "ok")])
def test_flag(site, value, state):
    """Catches ``ok`` for a plugin that is off."""
    found = only(site.examine(SGLANG_PPFIX=value), "settings")
    assert found["state"] == state


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SGLANG_PPFIX", "maybe"),
        ("SGLANG_PPFIX_SLOTS", "-1"),
        ("SGLANG_PPFIX_POLIZY", "balanced"),
    ],
)
def test_wrong_settings(site, variable, value):
    """Catches a wrong or misspelt setting that only ends the server later."""
    environ = {"SGLANG_PPFIX": "1", variable: value}
    found = only(site.examine(**environ), "settings")
    assert found["state"] == "fail"
    assert variable in found["text"]
    assert value in found["text"]
    assert found["fix"] == f"unset {variable}"


def test_no_entry_point(site):
    """Catches a check of the import instead of the metadata."""
    (link,) = site.folder.glob("sglang_ppfix-*.dist-info")
    text = (link / "METADATA").read_text()
    link.unlink()
    link.mkdir()
    (link / "METADATA").write_text(text)
    found = only(site.examine(), "entry_point")
    assert found["state"] == "fail"
    assert "pip install" in found["fix"]


def test_name_taken_by_another_distribution(site):
    """Catches a look at names only."""
    points = "[sglang.srt.plugins]\nppfix = elsewhere:register\n"
    site.add_distribution("impostor", "1.0", points)
    found = only(site.examine(), "entry_point")
    assert found["state"] == "fail"
    assert "elsewhere:register" in found["text"]
    assert "impostor" in found["text"]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ("other", "fail"),
        ("__none__", "fail"),
        ("ppfix_lab", "fail"),  # not the plugin, although the name begins so
        ("other, ppfix", "ok"),
        ("", "ok"),
    ],
)
def test_excluded_by_sglang_plugins(site, value, state):
    """Catches another reading of the list than SGLang's."""
    found = only(site.examine(SGLANG_PLUGINS=value), "exclusions")
    assert found["state"] == state
    if state == "fail":
        assert found["fix"] == f"export SGLANG_PLUGINS={value},ppfix"


@pytest.mark.parametrize(("selected", "state"), [("acme", "ok"), ("other", "fail")])
def test_excluded_by_sglang_platform(site, selected, state):
    """Catches a rule that SGLang has and the doctor does not: a distribution with a
    platform plugin is left out when another platform is selected."""
    (link,) = site.folder.glob("sglang_ppfix-*.dist-info")
    texts = {p.name: p.read_text() for p in link.iterdir() if p.is_file()}
    link.unlink()
    link.mkdir()
    for name, text in texts.items():
        (link / name).write_text(text)
    with (link / "entry_points.txt").open("a") as file:
        file.write("\n[sglang.srt.platforms]\nacme = sglang_ppfix:acme\n")
    found = only(site.examine(SGLANG_PLATFORM=selected), "exclusions")
    assert found["state"] == state
