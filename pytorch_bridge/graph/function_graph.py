"""A graph between inputs and outputs that can be changed safely.

It knows who uses each variable, and tells its features of every change. A change can be tried:
what is done in `trial` is validated by the features, and taken back where one objects.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from ..errors import BridgeTypeError, BridgeValueError, InconsistencyError
from .basic import Apply, Constant, Variable, check_owned, clone_graph, ordered, toposort
from .features import Feature

_F = TypeVar("_F")

OUTPUT = "output"
Client = tuple[Apply | str, int]  # (node, which of its inputs) or (OUTPUT, which output)
# A step of a change: what does it, and what tells a feature of it, with the reason.
_Step = tuple[Callable[[], None], Callable[[Feature, str], None]]


class FunctionGraph:
    """The graph from `inputs` to `outputs`.

        >>> x = pb.TensorType("float32", (None,))("x")
        >>> [str(node.op) for node in pb.FunctionGraph([x], [x.exp().sum()]).toposort()]
        ['exp', 'sum']

    With `clone`, it is a copy, and the variables of the caller stay as they are; `became` then has
    what each of them is here. Every variable without an owner must be an input or a constant.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        features: Iterable[Feature] = (),
        clone: bool = True,
    ) -> None:
        inputs = ordered("the inputs of a graph", inputs)
        outputs = ordered("the outputs of a graph", outputs)
        for kind, variables in (("input", inputs), ("output", outputs)):
            for i, v in enumerate(variables):
                if not isinstance(v, Variable):
                    raise BridgeTypeError(f"{kind} {i} of the graph is no variable: {v!r}")
        self.features: list[Feature] = []
        seen: dict[Variable, int] = {}
        for i, v in enumerate(inputs):
            if isinstance(v, Constant):
                raise BridgeTypeError(f"input {i} of the graph is the constant {v}")
            if v in seen:
                raise BridgeValueError(f"inputs {seen[v]} and {i} of the graph are the same: {v}")
            seen[v] = i
        self.became: dict[Variable, Variable] = {}
        if clone:
            inputs, outputs, self.became = clone_graph(inputs, outputs)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._input_set = set(self.inputs)
        # Who uses each variable; dicts as ordered sets.
        self.clients: dict[Variable, dict[Client, None]] = {v: {} for v in self.inputs}
        self.apply_nodes: dict[Apply, None] = {}  # in the order of their arrival
        self._undo: list[tuple[_Step, list[Feature]]] | None = None
        for i, v in enumerate(self.outputs):
            self._import(v, f"output {i}")
            self.clients[v][OUTPUT, i] = None
        for feature in features:
            self.attach_feature(feature)

    # What is in it
    @property
    def variables(self) -> Iterator[Variable]:
        return iter(self.clients)

    def __contains__(self, what: Apply | Variable) -> bool:
        return what in (self.apply_nodes if isinstance(what, Apply) else self.clients)

    def toposort(self) -> list[Apply]:
        """The nodes in an order that computes them, which the features may restrict (a destroyer
        comes after every other reader). It depends on the graph only."""
        order = toposort(self.outputs, self.inputs)
        before: dict[Apply, list[Apply]] = {}
        for feature in self.features:
            for node, earlier in feature.orderings(self).items():
                before.setdefault(node, []).extend(earlier)
        return order if not before else self._restricted(order, before)

    def _restricted(self, order: list[Apply], before: dict[Apply, list[Apply]]) -> list[Apply]:
        """The order with more restrictions, as near to the given one as they allow."""
        place = {node: i for i, node in enumerate(order)}
        waiting = dict.fromkeys(order, 0)
        after: dict[Apply, list[Apply]] = {}
        for node in order:
            needs = {v.owner for v in node.inputs if v.owner in place and v not in self._input_set}
            needs.update(n for n in before.get(node, ()) if n in place)
            waiting[node] = len(needs)
            for n in needs:
                assert n is not None
                after.setdefault(n, []).append(node)
        ready = [place[n] for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        result: list[Apply] = []
        while ready:
            node = order[heapq.heappop(ready)]
            result.append(node)
            for n in after.get(node, ()):
                waiting[n] -= 1
                if waiting[n] == 0:
                    heapq.heappush(ready, place[n])
        if len(result) != len(order):
            stuck = next(n for n in order if waiting[n] and n in before)
            raise InconsistencyError(
                f"no order of the nodes computes this graph: {stuck} would have to run both before "
                "and after another reader of what it destroys"
            )
        return result

    # Coming and going
    def _import(self, variable: Variable, reason: str) -> None:
        """Takes in what computes a variable."""
        if variable in self.clients:
            return
        if variable.owner is None:
            self._import_leaf(variable, reason)
            return
        check_owned(variable)
        order = [n for n in toposort([variable], self.clients) if n not in self.apply_nodes]
        made = {v for node in order for v in node.outputs}
        for node in order:  # before anything is taken in, so that a refusal changes nothing
            for i, v in enumerate(node.inputs):
                if v not in made and v not in self.clients:
                    self._check_leaf(v, f"input {i} of {node.op}")
        for node in order:
            self._step(node, True, reason)

    def _import_leaf(self, v: Variable, reason: str) -> None:
        self._check_leaf(v, reason)
        self.clients[v] = {}

    def _check_leaf(self, v: Variable, reason: str) -> None:
        check_owned(v)
        if not isinstance(v, Constant):
            raise BridgeValueError(
                f"{reason} needs the variable {v} of type {v.type}, which is no input of the graph"
            )

    def _prune(self, variable: Variable, reason: str) -> None:
        """Lets go what nobody uses any more."""
        pending = [variable]
        while pending:
            v = pending.pop()
            if self.clients.get(v) or v in self._input_set or v not in self.clients:
                continue
            if v.owner is None or v.owner not in self.apply_nodes:
                del self.clients[v]
                continue
            node = v.owner
            if any(self.clients[o] for o in node.outputs if o not in self._input_set):
                continue
            self._step(node, False, reason)
            pending += node.inputs

    def _step(self, node: Apply, comes: bool, reason: str) -> None:
        """Takes a node in, or lets it go."""

        def come() -> None:
            self.apply_nodes[node] = None
            for v in node.outputs:
                self.clients.setdefault(v, {})
            for i, v in enumerate(node.inputs):
                self.clients.setdefault(v, {})[node, i] = None

        def go() -> None:
            del self.apply_nodes[node]
            for v in node.outputs:
                if v not in self._input_set:
                    self.clients.pop(v, None)
            for i, v in enumerate(node.inputs):
                self.clients.get(v, {}).pop((node, i), None)
            for v in node.inputs:
                self._drop_leaf(v)

        coming: _Step = come, lambda f, why: f.on_import(self, node, why)
        going: _Step = go, lambda f, why: f.on_prune(self, node, why)
        self._do(*((coming, going) if comes else (going, coming)), reason)

    def _drop_leaf(self, v: Variable) -> None:
        """Forgets a constant that nobody uses any more."""
        if v.owner is None and v not in self._input_set and not self.clients.get(v, True):
            del self.clients[v]

    def _do(self, step: _Step, back: _Step, reason: str) -> None:
        """Takes a step, which `back` takes back, and tells the features, until one raises."""
        do, tell = step
        do()
        heard: list[Feature] = []
        if self._undo is not None:
            self._undo.append((back, heard))
        for feature in self.features:
            tell(feature, reason)
            heard.append(feature)

    # Features
    def attach_feature(self, feature: Feature) -> None:
        """Adds a feature, unless it is there; it may object by raising."""
        if any(f is feature for f in self.features):
            return
        feature.on_attach(self)
        self.features.append(feature)

    def remove_feature(self, feature: Feature) -> None:
        """Takes a feature away; BridgeValueError where it is not there."""
        left = [f for f in self.features if f is not feature]
        if len(left) == len(self.features):
            raise BridgeValueError(f"the feature {feature} is not in the list of the graph's")
        self.features[:] = left
        feature.on_detach(self)

    def feature(self, kind: type[_F]) -> _F | None:
        """The feature of a class, or None."""
        return next((f for f in self.features if isinstance(f, kind)), None)

    def validate(self) -> None:
        """Raises what a feature has against the graph as it is, InconsistencyError mostly, and
        where a node needs what it computes itself."""
        order = toposort(self.outputs, self.inputs)
        if len(order) != len(self.apply_nodes):
            self._let_go(set(order))
        for feature in self.features:
            feature.validate(self)

    def _let_go(self, needed: set[Apply]) -> None:
        """Lets a cycle go that nobody uses any more: its nodes use each other."""
        for node in [n for n in self.apply_nodes if n not in needed]:
            self._step(node, False, "validate")

    # Changes
    def change_input(self, client: Apply | str, i: int, new: Variable, reason: str = "") -> None:
        """Makes `new` input i of a node, or output i of the graph where client is OUTPUT.
        BridgeTypeError where new is neither of the type that is there nor of a narrower one. Where
        a feature raises, the graph is as before. BridgeValueError for what is in no use here."""
        old = self._used(client, i)
        if new.type != old.type and not old.type.is_super(new.type):
            where = f"output {i}" if isinstance(client, str) else f"input {i} of {client.op}"
            raise BridgeTypeError(
                f"{where} is {old} of type {old.type}, so it cannot become {new} of type "
                f"{new.type} ({reason or 'change_input'}); {old.type}.filter_variable converts"
            )
        if self._undo is not None:
            self._change(client, i, new, reason)
            return
        with self._reverting(reason):
            self._change(client, i, new, reason)

    def _used(self, client: Apply | str, i: int) -> Variable:
        """Input i of a node of the graph, or output i of the graph."""
        known = client == OUTPUT if isinstance(client, str) else client in self.apply_nodes
        variables = self.outputs if isinstance(client, str) else client.inputs
        if not known or not 0 <= i < len(variables):
            raise BridgeValueError(
                f"change_input: there is no input {i} of {client} in the graph; a client is one of "
                f"its nodes, or {OUTPUT!r} for an output"
            )
        return variables[i]

    def _change(self, client: Apply | str, i: int, new: Variable, reason: str) -> None:
        old = self.outputs[i] if isinstance(client, str) else client.inputs[i]
        if old is new:
            return
        self._import(new, reason or "a replacement")

        def change(old: Variable, new: Variable) -> None:
            if isinstance(client, str):
                self.outputs[i] = new
            else:
                client.inputs[i] = new
            del self.clients[old][client, i]
            self.clients.setdefault(new, {})[client, i] = None

        def undo() -> None:
            change(new, old)
            self._drop_leaf(new)

        self._do(
            (
                lambda: change(old, new),
                lambda f, why: f.on_change_input(self, client, i, old, new, why),
            ),
            (undo, lambda f, why: f.on_change_input(self, client, i, new, old, why)),
            reason,
        )
        self._prune(old, reason)

    def replace(self, old: Variable, new: Variable, reason: str = "") -> None:
        """Puts `new` in the place of `old` for all who use it. `new` becomes of old's type where
        it is of a wider one, by a check at run time; TypeError where the two cannot meet.

        `new` may be made of `old` itself, which it then goes on to use. Whether it depends on who
        else uses `old`, which makes a cycle, is found out by `validate`."""
        if old is new:
            return
        if old not in self.clients:
            raise BridgeValueError(f"{old}, to be replaced ({reason}), is not in the graph")
        if old in self._input_set and not self.clients[old]:
            return
        try:
            new = old.type.filter_variable(new)
        except TypeError as e:
            raise BridgeTypeError(f"cannot replace {old} by {new} ({reason}): {e}") from e
        # What `new` itself needs of `old` is meant as it is.
        with self._reverting(reason):
            for client, i in list(self.clients[old]):
                if not isinstance(client, Apply) or client is not new.owner:
                    self.change_input(client, i, new, reason)

    def replace_all(self, pairs: Iterable[tuple[Variable, Variable]], reason: str = "") -> None:
        """`replace` for each pair; all of them, or none where one raises."""
        with self._reverting(reason):
            for old, new in pairs:
                if old in self.clients:
                    self.replace(old, new, reason)

    @contextmanager
    def trial(self, reason: str = "") -> Iterator[None]:
        """Whatever is changed inside is validated at the end; where that or the change itself
        raises, the graph is as before. One inside another is taken back alone, or with it."""
        with self._reverting(reason):
            yield
            self.validate()

    @contextmanager
    def _reverting(self, reason: str) -> Iterator[None]:
        """Takes back what is changed inside where something raises."""
        outer = self._undo
        self._undo = []
        try:
            yield
        except BaseException:
            for (undo, tell), heard in reversed(self._undo):
                undo()
                for feature in reversed(heard):
                    # One that raises here, too, does not keep the others from hearing of it.
                    with suppress(Exception):
                        tell(feature, f"revert {reason}")
            raise
        else:
            if outer is not None:
                outer += self._undo
        finally:
            self._undo = outer

    def replace_all_validate(
        self, pairs: Iterable[tuple[Variable, Variable]], reason: str = ""
    ) -> None:
        """`replace_all`, then `validate`; where either raises, the graph is as before."""
        with self.trial(reason):
            self.replace_all(pairs, reason)

    def try_replace(self, old: Variable, new: Variable, reason: str = "") -> bool:
        """`replace`, then `validate`; False where it was taken back."""
        return self.try_replace_all([(old, new)], reason)

    def try_replace_all(self, pairs: Iterable[tuple[Variable, Variable]], reason: str = "") -> bool:
        """`replace_all_validate`; False where it was taken back."""
        try:
            self.replace_all_validate(pairs, reason)
        except InconsistencyError:
            return False
        return True

    def check(self) -> None:
        """Raises AssertionError where clients and nodes do not agree. For tests."""
        clients: dict[Variable, list[Client]] = {}
        nodes = toposort(self.outputs, self.inputs)
        assert set(nodes) == set(self.apply_nodes), "the nodes are not those of the graph"
        for node in nodes:
            for i, v in enumerate(node.inputs):
                clients.setdefault(v, []).append((node, i))
        for i, v in enumerate(self.outputs):
            clients.setdefault(v, []).append((OUTPUT, i))
        for v, theirs in self.clients.items():
            expected = sorted(map(_number, clients.pop(v, [])))
            assert expected == sorted(map(_number, theirs)), f"clients of {v}"
        assert not clients, f"not known: {list(clients)}"

    def clone(self, features: Iterable[Feature] = ()) -> FunctionGraph:
        """Returns a copy, with other features."""
        return FunctionGraph(self.inputs, self.outputs, features)

    def __copy__(self) -> FunctionGraph:
        """`clone`: of nodes that two graphs have, each would change the other's."""
        return self.clone()

    def __str__(self) -> str:
        from .printing import dprint

        return dprint(self, file="str") or ""


def _number(client: Client) -> tuple[int, int]:
    """A client as numbers. (The text OUTPUT is another object in a graph that was pickled.)"""
    node, i = client
    return (0 if isinstance(node, str) else id(node)), i
