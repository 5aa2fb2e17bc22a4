"""``tox.ini`` holds what its comment promises. Read without tox."""

import ast
import configparser
import itertools
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "contract" / "test_release_lab.py"
if not LAB.is_file():
    pytest.skip("only the package is here", allow_module_level=True)


def expand(text):
    """Names of a list with braces, as tox expands it."""
    names = []
    for part in re.split(r",(?![^{]*})|\n", text):
        pieces = re.split(r"{([^}]*)}", part.strip())
        choices = [piece.split(",") for piece in pieces]
        choices[::2] = [[piece] for piece in pieces[::2]]
        names += ["".join(each) for each in itertools.product(*choices)]
    return [name for name in names if name]


@pytest.fixture(scope="module")
def config():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def sections(config):
    """Environment to its section; ``py3XX-`` of a name chooses the interpreter."""
    return {
        name: config[section]
        for section in config.sections()
        if section.startswith("testenv:")
        for name in expand(section.removeprefix("testenv:"))
    }


@pytest.fixture(scope="module")
def labels(config):
    """Label to its environments."""
    lines = config["tox"]["labels"].strip().splitlines()
    pairs = (line.split("=", 1) for line in lines)
    return {name.strip(): expand(names) for name, names in pairs}


def lab_releases():
    """``RELEASES`` of the lab's test, which needs its conftest to be imported."""
    for node in ast.parse(LAB.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RELEASES":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{LAB} has no RELEASES")


def test_every_environment_has_commands(config, sections, labels):
    """Catches a name in a list that no section defines: tox would run the unit tests
    under it, and pass."""
    listed = [*expand(config["tox"]["env_list"]), *labels["releases"]]
    assert len(listed) == len(set(listed)) > 10
    for name in listed:
        unit = re.fullmatch(r"py3\d+-unit", name)
        section = config["testenv"] if unit else sections[name]
        assert section["commands"].strip(), name


def test_the_list_is_what_ci_runs(config):
    """Catches a group that CI runs and ``tox`` leaves out."""
    names = expand(config["tox"]["env_list"])
    groups = {re.sub(r"^py3\d+-|-sglang.*$", "", name) for name in names}
    assert groups == set(runpy.run_path(str(ROOT / "dev.py"))["DEFAULT"])


def test_releases_are_those_of_the_lab(labels):
    """Catches a release that is added to the test and to no environment."""
    found = [name.removeprefix("releases-sglang") for name in labels["releases"]]
    assert found == [release.replace(".", "") for release in lab_releases()]


def test_each_release_is_passed_to_pytest(sections, labels):
    """Catches a factor that runs another release, several, or none."""
    for name, release in zip(labels["releases"], lab_releases(), strict=True):
        section = sections[name]
        factors = dict(line.split(": ") for line in section["set_env"].split("\n")[1:])
        variable, _, value = factors[name.split("-")[1]].partition(" = ")
        wanted = f"-m releases -k {{env:{variable}}} tests/contract"
        assert wanted in section["commands"]
        # What -k compares: the ids of the fixture's parameters.
        assert [other for other in lab_releases() if value in other] == [release]
