"""Some random graphs in each run; `make soak` runs thousands."""

from __future__ import annotations

import os

import pointwise_cases
import pytest
import random_graphs

# Half of what CI runs are always the same graphs, which are known to pass; `SEED=n` begins the other
# half at n, to be run again where it has failed.
COUNT = 250
SEED = int(os.environ.get("SEED", "1000"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_are_what_eager_says(part):
    went = []
    for start in (0, SEED):
        for seed in range(start + part, start + COUNT, PARTS):
            try:
                went.append(random_graphs.check(seed, **random_graphs.how(seed)))
            except Exception as e:
                graph = random_graphs.Maker(seed).make()
                raise AssertionError(f"{graph}\n{type(e).__name__}: {e}") from e
    assert went.count("fine") > len(went) // 2


@pytest.mark.parametrize("start", [0, SEED])
def test_random_elementwise_graphs_have_eagers_bits_and_strides(start):
    went = [pointwise_cases.check(seed) for seed in range(start, start + 40)]
    assert went.count("fine") > len(went) // 3  # not every function takes every dtype


def test_what_eager_refuses_may_be_refused_in_other_words():
    """The gradient of pixel_shuffle without rows; eager names the function, the graph two sizes."""
    assert random_graphs.check(20233, **random_graphs.how(20233)).startswith("fine")


def test_a_seed_makes_the_same_graph():
    first, again, other = (str(random_graphs.Maker(seed).make()) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_wrong_type_and_a_wrong_value_are_found(monkeypatch):
    """The checks check: each is given something to find."""
    seed = next(s for s in range(0, 99) if random_graphs.Maker(s).make().steps)
    make = random_graphs.Graph.run

    def wrong_value(graph, library, inputs):
        values = make(graph, library, inputs)
        return values if library is random_graphs.ops else [v * 2 + 1 for v in values]

    def wrong_shape(graph, library, inputs):
        values = make(graph, library, inputs)
        return values if library is random_graphs.ops else [v[None] for v in values]

    for run, message in ((wrong_value, "output"), (wrong_shape, "is typed")):
        monkeypatch.setattr(random_graphs.Graph, "run", run)
        with pytest.raises(random_graphs.Fault, match=message):
            random_graphs.check(seed)
