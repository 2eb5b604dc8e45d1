"""The public names of pytorch_bridge say what they do, with an example that is run."""

from __future__ import annotations

import doctest
import inspect

import pytest
import torch

import pytorch_bridge as pb

# Whose examples are pages of docs/, because they take files, or a Go compiler.
ELSEWHERE = {"draw", "export_go", "load_go"}
FUNCTIONS = [
    name for name in pb.__all__ if inspect.isroutine(getattr(pb, name)) and name not in ELSEWHERE
]


def examples(name):
    thing = inspect.unwrap(getattr(pb, name))
    finder = doctest.DocTestFinder(recurse=False)
    return [t for t in finder.find(thing, name, globs={"pb": pb, "torch": torch}) if t.examples]


@pytest.mark.parametrize("name", pb.__all__)
def test_every_public_name_says_what_it_is(name):
    thing = getattr(pb, name)
    assert (thing.__doc__ or "").strip(), name


@pytest.mark.usefixtures("library", "unregistered")
@pytest.mark.parametrize("name", [n for n in pb.__all__ if n in FUNCTIONS or examples(n)])
def test_the_example_in_a_docstring_does_what_it_says(name):
    found = examples(name)
    assert found, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in found:
        out = []
        runner.run(test, out=out.append)
        assert not out, "".join(out)
