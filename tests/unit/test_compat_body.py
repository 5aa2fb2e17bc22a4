"""Fingerprints of bodies: what counts as a change and what does not."""

import ast
import json
import subprocess
import sys
import textwrap

import pytest

from sglang_ppfix.compat.body import fingerprint

BASE = '''
def admit(self, batch: "Batch", limit: int = 3) -> bool:
    """Admit a request."""
    room: int = limit - len(batch)
    if room <= 0:
        batch.full = True
        return False
    return f"{room!r:>4}" != self.label and not (room < 1 < limit)
'''


def of(source):
    """Fingerprint of the one function in ``source``."""
    (node,) = ast.parse(textwrap.dedent(source)).body
    return fingerprint(node)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Admit a request."""', '"""Another text."""'),
        ('    """Admit a request."""\n', ""),
        ("room: int = limit", "room = limit"),
        ('batch: "Batch", limit: int = 3) -> bool', "batch, limit=3)"),
        ("if room <= 0:", "if (room <= 0):  # full"),
        ("batch.full = True\n", "batch.full = (\n            True\n        )\n\n"),
        ("def admit", "@traced\ndef admit"),
    ],
)
def test_the_same_to_python(old, new):
    """Catches an alarm about comments, layout, docstrings or annotations."""
    changed = BASE.replace(old, new)
    assert changed != BASE
    assert of(changed) == of(BASE)


def test_a_bare_annotation_does_nothing():
    """Catches an annotation that counts although nothing is assigned."""
    assert of("def f():\n    x: int\n    g()") == of("def f():\n    pass\n    g()")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("room <= 0", "room < 0"),
        ("= True", "= 1"),
        ("batch.full = True", "batch.full = None"),
        ("return False", "return None"),
        ("return False", "return"),
        ("limit: int = 3", "limit: int = 4"),
        ("limit: int = 3", "limit: int"),
        ("admit(self", "admit_one(self"),
        ("!r:>4", "!s:>4"),
        ("!r:>4", "!r:>5"),
        ("not (", "("),
        ("self.label", "self.name"),
        ("        batch.full = True\n", ""),
    ],
)
def test_not_the_same(old, new):
    """Catches a change that goes unseen: each of these runs another way."""
    changed = BASE.replace(old, new)
    assert changed != BASE
    assert of(changed) != of(BASE)


def test_nested_docstrings_do_not_count():
    """Catches a docstring of an inner function that changes the fingerprint."""
    text = "def f():\n    def g():\n        {}return 1\n    return g"
    assert of(text.format("'''a'''\n        ")) == of(text.format(""))


def interpreters():
    """Other Pythons of this machine that can read the package."""
    found = []
    for minor in (10, 11, 12, 13, 14):
        name = f"python3.{minor}"
        try:
            done = subprocess.run([name, "-c", ""], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            found.append(name)
    return found


@pytest.mark.parametrize("python", interpreters())
def test_the_same_in_every_python(python):
    """Catches a fingerprint that the Python that parses takes part in: the known ones
    were written by one Python and are read by all."""
    source = BASE + "    x = [*a, {**b}, lambda *c, d=1, **e: (yield)]\n"
    code = (
        "import ast, json, sys; sys.path.insert(0, sys.argv[1]);"
        "from sglang_ppfix.compat.body import fingerprint;"
        "print(json.dumps(fingerprint(ast.parse(sys.stdin.read()).body[0])))"
    )
    root = __file__.rpartition("/tests/")[0]
    done = subprocess.run(
        [python, "-c", code, root],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == of(source), sys.version
