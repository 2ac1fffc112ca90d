"""pyproject.toml, environment.yml and constraints.txt say the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import subtrace_kit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONDA_NAMES = {"torch": "pytorch", "graphviz": "python-graphviz"}
CONDA_ONLY = {"pip", "graphviz"}
"""Conda's `graphviz` is the program `dot`, which graphviz-pure stands for on PyPI."""


def _direct() -> list[Requirement]:
    """Every package that pyproject.toml asks for, extras included, but for the package itself."""
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [r for r in map(Requirement, lines) if canonicalize_name(r.name) != canonicalize_name(PROJECT["name"])]


def _conda() -> dict[str, SpecifierSet]:
    *packages, last = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    split = (line.partition(" ") for line in packages)
    specifiers = {name: SpecifierSet(versions) for name, _, versions in split}
    return specifiers | {r.name: r.specifier for r in map(Requirement, last["pip"])}


def _pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_environment_yml_agrees_with_pyproject() -> None:
    wanted = {CONDA_NAMES.get(r.name, r.name): r.specifier for r in _direct()}
    wanted["python"] = SpecifierSet(PROJECT["requires-python"])
    found = {name: specifier for name, specifier in _conda().items() if name not in CONDA_ONLY}
    assert found == wanted


def test_conda_brings_the_dot_program_and_pip() -> None:
    assert _conda().keys() >= CONDA_ONLY


def test_a_package_has_one_range_in_all_extras() -> None:
    ranges: dict[str, set[SpecifierSet]] = {}
    for requirement in _direct():
        ranges.setdefault(requirement.name, set()).add(requirement.specifier)
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def test_every_direct_dependency_is_pinned_for_every_python() -> None:
    wanted = {r.name for r in _direct()}
    assert {pin.name for pin in _pins()} == wanted
    for python in ("3.10", "3.11", "3.14"):
        here = [pin.name for pin in _pins() if _applies(pin, python)]
        assert sorted(here) == sorted({r.name for r in _direct() if _applies(r, python)}), f"on Python {python}"


def _applies(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"python_version": python})


def test_pins_lie_in_the_ranges_of_pyproject() -> None:
    for requirement in _direct():
        for pin in (pin for pin in _pins() if pin.name == requirement.name):
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert exact.version in requirement.specifier, f"{pin} is outside {requirement}"


def test_version_stands_in_one_place_and_in_the_changelog() -> None:
    assert "version" in PROJECT["dynamic"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest
    assert newest[1] == subtrace_kit.__version__
