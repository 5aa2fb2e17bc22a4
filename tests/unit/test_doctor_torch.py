"""The doctor on torch, which it never imports: every torch here would raise."""

import pytest
from doctor_site import Site, only


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.add_sglang("0.5.23", requires="Requires-Dist: torch==2.14.1\n")
    return made


@pytest.mark.parametrize("local", ["", "+cu130"])
def test_whole(site, local):
    """Catches an import of torch, and a claim that one would succeed."""
    site.add_torch("2.14.1", local)
    found = only(site.examine(), "torch")
    assert (found["state"], found["fix"]) == ("ok", None)
    assert "not imported" in found["text"]


def test_missing(site):
    """Catches a server that cannot start and is called startable."""
    found = only(site.examine(), "torch")
    assert found["state"] == "fail"
    assert "torch==2.14.1" in found["fix"]


def remove(path):
    path.unlink()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("pattern", "damage", "text"),
    [
        ("__init__.py", remove, "no package torch is importable"),
        ("version.py", remove, "does not say which version"),
        ("_C*", remove, "no extension module _C"),
        ("lib/libtorch.so", remove, "libtorch.so is missing or not whole"),
        ("lib/libtorch.so", cut, "libtorch.so is missing or not whole"),
    ],
)
def test_damaged(site, pattern, damage, text):
    """Catches ``ok`` for what an interrupted installation left behind."""
    (path,) = site.add_torch("2.14.1").glob(pattern)
    damage(path)
    found = only(site.examine(), "torch")
    assert found["state"] == "fail"
    assert text in found["text"]
    assert "--force-reinstall --no-deps torch==2.14.1" in found["fix"]


def test_metadata_without_the_package(site):
    """Catches a module in its place that is taken for torch."""
    site.add_distribution("torch", "2.14.1")
    (site.folder / "torch.py").write_text("raise ImportError('libcudart.so')\n")
    found = only(site.examine(), "torch")
    assert found["state"] == "fail"
    assert "torch.py is not the package" in found["text"]


def test_extension_of_another_python(site):
    """Catches any ``_C`` taken for one that this interpreter loads."""
    (path,) = site.add_torch("2.14.1").glob("_C*")
    path.rename(path.with_name("_C.cpython-27-x86_64-linux-gnu.so"))
    assert only(site.examine(), "torch")["state"] == "fail"


def test_two_installations_mixed(site):
    """Catches a check that believes the metadata alone."""
    package = site.add_torch("2.14.1")
    (package / "version.py").write_text("__version__ = '2.13.0'\n")
    found = only(site.examine(), "torch")
    assert found["state"] == "fail"
    assert "2.13.0: two installations" in found["text"]


def test_of_another_release(site):
    """Catches a pin that is not compared."""
    site.add_torch("2.9.0")
    found = only(site.examine(), "torch")
    assert found["state"] == "warn"
    assert "2.9.0" in found["text"]
    assert "torch==2.14.1" in found["fix"]


@pytest.mark.parametrize(
    ("requires", "state"),
    [("nvidia-cublas==13.1", "warn"), ("rich>=999", "ok"), ("x; extra == 'y'", "ok")],
)
def test_libraries_that_are_distributions(site, requires, state):
    """Catches a CUDA library that is not there, and an alarm about pip's business."""
    site.add_torch("2.14.1", requires=f"Requires-Dist: {requires}\n")
    found = only(site.examine(), "torch")
    assert found["state"] == state
    if state == "warn":
        assert requires in found["text"]
        assert requires in found["fix"]
