"""The examples in docstrings run and give what they say; what is public has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import subtrace_kit
import subtrace_kit.zoo

MODULES = [name for _, name, _ in pkgutil.walk_packages(subtrace_kit.__path__, "subtrace_kit.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


@pytest.mark.parametrize("space", [subtrace_kit, subtrace_kit.zoo])
def test_everything_public_has_an_example(space):
    public = [getattr(space, name) for name in space.__all__ if inspect.isroutine(getattr(space, name))]
    assert public
    assert [f.__name__ for f in public if ">>>" not in (f.__doc__ or "")] == []
