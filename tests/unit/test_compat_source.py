"""Reading a package without importing it: methods, bases, attributes, parameters."""

import inspect
import sys
import zipfile

import pytest

from sglang_ppfix.compat.source import (
    SourceError,
    SourceTree,
    package_folder,
    parameters_of,
)
from sglang_ppfix.patching import parameters_of as live_parameters_of

FILES = {
    "__init__.py": "raise AssertionError('imported')",
    "a.py": """
from sglang.b import Mixin
from sglang.sub import Other

class Base:
    kept: int = 0
    def shared(self): self.from_base = 1

class Child(Mixin, Base, Other):
    __slots__ = ("slotted",)
    def own(self, x, /, y=1, *rest, z, **more): pass
    def twice(self): first = 1
    def twice(self): second = 2

def function(a, *, b): pass
""",
    "b.py": """
class Mixin:
    def mixed(self: "Child", x): self.from_mixin, self.too = 1, 2
    def shared(self, first): pass
""",
    "sub/__init__.py": "class Other:\n    def other(self): pass\n",
    "broken.py": "def f(:\n",
}


@pytest.fixture(params=["folder", "wheel"])
def tree(request, tmp_path):
    """The same package as a folder and inside a wheel."""
    if request.param == "wheel":
        with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
            for name, text in FILES.items():
                wheel.writestr(f"sglang/{name}", text)
        return SourceTree(zipfile.Path(tmp_path / "x.whl", "sglang/"))
    for name, text in FILES.items():
        path = tmp_path / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree(tmp_path / "sglang")


@pytest.mark.parametrize(
    ("qualname", "module", "parameters"),
    [
        ("Child.own", "sglang.a", "x, y, *rest, z, **more"),
        ("Child.mixed", "sglang.b", "x"),
        ("Child.shared", "sglang.b", "first"),  # the mixin comes first
        ("Child.other", "sglang.sub", ""),  # a package's __init__.py
        ("function", "sglang.a", "a, b"),
        ("Child.missing", None, None),
        ("Missing.own", None, None),
    ],
)
def test_find(tree, qualname, module, parameters):
    """Catches a method that is looked for in its class only, or in the wrong base."""
    found = tree.find("sglang.a", qualname)
    if module is None:
        assert found is None
    else:
        assert (found.module, parameters_of(found.node)) == (module, parameters)


def test_the_last_definition_counts(tree):
    """Catches the first of two definitions, which Python forgets."""
    found = tree.find("sglang.a", "Child.twice")
    assert found.node.body[0].targets[0].id == "second"


def test_missing_module(tree):
    """Catches an exception where the answer is no."""
    assert tree.find("sglang.nowhere", "Child.own") is None
    assert not tree.has_class("sglang.nowhere", "Child")


def test_attributes(tree):
    """Catches attributes of bases, tuple assignments or class fields left out."""
    found = tree.attributes("sglang.a", "Child")
    assert {"own", "mixed", "from_mixin", "too", "from_base", "kept"} <= found
    assert "missing" not in found


def test_a_file_that_is_no_python(tree):
    """Catches a SyntaxError that reaches the user as a traceback."""
    with pytest.raises(SourceError, match=r"sglang\.broken"):
        tree.find("sglang.broken", "f")


def test_parameters_are_spelled_as_at_run_time(tree):
    """Catches two spellings, so that doctor and start-up would disagree."""
    scope = {}
    exec("def own(self, x, /, y=1, *rest, z, **more): pass", scope)
    found = tree.find("sglang.a", "Child.own")
    assert parameters_of(found.node) == live_parameters_of(scope["own"])
    assert inspect.signature(scope["own"])


def test_the_working_directory_is_looked_past(tmp_path, monkeypatch):
    """Catches a verdict about a folder that only ``python -m`` would import."""
    for name in ("work", "site"):
        (tmp_path / name / "sglang").mkdir(parents=True)
        (tmp_path / name / "sglang" / "__init__.py").write_text("")
    work, site = tmp_path / "work", tmp_path / "site"
    monkeypatch.setattr(sys, "path", [str(work), str(site), *sys.path])
    assert package_folder(work) == site / "sglang"
    assert package_folder() == work / "sglang"
    monkeypatch.setattr(sys, "path", [str(work)])
    assert package_folder(work) == work / "sglang"


def test_a_folder_without_init_is_no_package(tmp_path, monkeypatch):
    """Catches a namespace package, such as a clone of the repository."""
    (tmp_path / "sglang").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert package_folder() is None
