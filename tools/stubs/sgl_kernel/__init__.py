"""Stands for ``sgl_kernel`` where there is no GPU: every name is there, none computes.

SGLang up to 0.5.12 imports the package without a guard, and the real one does not load
without libcuda.
"""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

__version__ = "0.0.0+stub"


class _Missing:
    """An attribute of the real package; calling it fails and says so."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "_Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self._name}.{name}")

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(f"stub: {self._name} was called without a GPU")


def __getattr__(name: str) -> _Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Missing(f"sgl_kernel.{name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes ``sgl_kernel.anything`` importable, as empty as this module."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("sgl_kernel."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = __getattr__


sys.meta_path.append(_Submodules())
