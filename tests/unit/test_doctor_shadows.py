"""The doctor on files and folders in the working directory that hide a package."""

import pytest
from doctor_site import Site, only


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.parametrize("name", ["sglang", "torch", "transformers", "wrapt"])
def test_a_file_with_the_name_of_a_package(site, name):
    """Catches a look for SGLang alone; the doctor itself may import what hides."""
    site.add_sglang("0.5.23")
    site.add_torch("2.14.1")
    (site.cwd / f"{name}.py").write_text("")
    checks = site.examine(SGLANG_PPFIX="1")
    found = only(checks, "working_directory")
    assert found["state"] == "fail"
    assert f"{name}.py would be imported instead of {name}" in found["text"]
    assert only(checks, "torch")["state"] == "ok"


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("sglang/__init__.py", "fail"),  # a package: wins over site-packages
        ("sglang.py", "fail"),
        ("sglang/README.md", "warn"),  # a clone of the repository: hides editables
        ("sgl_kernel/README.md", "warn"),
        ("other/__init__.py", "ok"),
    ],
)
def test_folder_with_the_name_of_a_package(site, path, state):
    """Catches a shadow that goes unseen, and a false alarm."""
    site.add_sglang("0.5.23")
    (site.cwd / path).parent.mkdir(exist_ok=True)
    (site.cwd / path).write_text("")
    found = only(site.examine(), "working_directory")
    assert found["state"] == state
    assert (found["fix"] is None) == (state == "ok")
