"""What an op is: a computation that a graph's nodes apply.

What an op is parametrised with is not in the graph: two nodes are the same computation when their
ops are equal and their inputs have equal types.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from ..errors import BridgeTypeError, ContractError, MissingMethodError
from ..graph.basic import Apply, Variable
from ..sameness import attributes_key, key
from ..types.base import HasCode, Sub, Type, check_names

# Attributes of Aesara's ops that have no effect here, and what to do instead.
_ABSENT = {
    "params_type": "name the parameters in __props__, and write them into the text of c_code",
    "get_params": "name the parameters in __props__, and write them into the text of c_code",
    "c_init_code_apply": "use c_init_code, or c_support_code_apply",
    "make_thunk": "define perform, c_code, or both",
    "make_py_thunk": "define perform",
    "make_c_thunk": "define c_code",
    "prepare_node": "prepare in make_node",
    "do_constant_folding": "an op with `random = True` is computed by each call",
}

Storage = list[Any]  # one element: an output's old value, or None

# What an op's methods are given and return.
Values: TypeAlias = Sequence[Any]
Storages: TypeAlias = Sequence[Storage]
Names: TypeAlias = Sequence[str]  # of C variables
Variables: TypeAlias = Sequence[Variable]
Gradients: TypeAlias = Sequence[Variable | None]


class Op(HasCode):
    """A computation. A subclass defines `make_node` (or `itypes` and `otypes`), and `perform` or
    `c_code` or both.

    `__props__` names the attributes that are its parameters: two ops of one class with the same
    parameters are then equal. Without it, an op equals itself only. A class may define `__eq__` and
    `__hash__` instead; then two ops are merged where they are equal and all of their attributes are
    the same.
    """

    __props__: tuple[str, ...] | None = None
    itypes: Sequence[Type] | None = None
    otypes: Sequence[Type] | None = None

    # What shares memory: the output's index to those of the inputs that it may be a view of, or
    # that it is made in. The key None of destroy_map has the inputs that are destroyed otherwise.
    view_map: Mapping[int, Sequence[int]] = MappingProxyType({})
    destroy_map: Mapping[int | None, Sequence[int]] = MappingProxyType({})

    default_output: int | None = None  # the one that a call returns, where others are hidden
    check_input = True  # False: this op does not need the checks of its inputs' c_extract
    only_calls = False  # True: the loops in its C code, if any, are over dimensions and not data
    explains_itself = False  # True: its errors say all that there is to say
    random = False  # True: each application is its own, never merged or computed beforehand
    leaves_out = False  # True: an output may be None whatever its type is, an undefined tensor

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_names(cls, _ABSENT)
        props = cls.__props__
        names = isinstance(props, (tuple, list)) and all(isinstance(p, str) for p in props)
        if props is not None and not names:
            raise BridgeTypeError(
                f"{cls.__qualname__}.__props__ is a tuple of the names of attributes, such as "
                f"('axis',), not {props!r}"
            )

    def _parameters(self) -> tuple[Any, ...] | None:
        if self.__props__ is None:
            return None
        try:
            return tuple([key(getattr(self, p)) for p in self.__props__])
        except AttributeError as e:
            raise BridgeTypeError(
                f"{type(self).__qualname__}.__props__ is {self.__props__!r}, and an attribute is "
                f"missing: {e}"
            ) from e

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self._parameters()
        if mine is None or type(self) is not type(other):
            return False
        assert isinstance(other, Op)
        return mine == other._parameters()

    def __hash__(self) -> int:
        mine = self._parameters()
        return object.__hash__(self) if mine is None else hash((type(self), mine))

    def __sameness__(self) -> Hashable:
        """The key of two ops of this class that may stand for each other: their parameters; where
        the class has its own `__eq__`, that and all attributes."""
        kind = type(self)
        if kind.__eq__ is Op.__eq__:
            return self._parameters()
        return None if kind.__hash__ is None else (self, attributes_key(self))

    def __str__(self) -> str:
        name = getattr(self, "name", None) or type(self).__name__
        if not self.__props__:
            return str(name)
        return f"{name}{{{', '.join(f'{p}={getattr(self, p)!r}' for p in self.__props__)}}}"

    __repr__ = __str__

    # In the graph
    def make_node(self, *inputs: Any) -> Apply:
        """Returns the application to inputs, which it checks; what is no variable is made a
        constant. It may look at the types of the inputs, not at what computed them."""
        if self.itypes is None or self.otypes is None:
            raise MissingMethodError(f"{self} defines neither make_node nor itypes and otypes")
        if len(inputs) != len(self.itypes):
            raise BridgeTypeError(f"{self} takes {len(self.itypes)} inputs, got {len(inputs)}")
        variables = [t.filter_variable(v) for t, v in zip(self.itypes, inputs, strict=True)]
        return Apply(self, variables, [t() for t in self.otypes])

    def __call__(self, *inputs: Any, name: str | None = None) -> Any:
        """The output of an application: a variable, or a list where there are several."""
        for v in inputs:
            # What stands for a variable (in a traced function) applies ops in its own way.
            if (apply := getattr(type(v), "__bridge_apply__", None)) is not None:
                return apply(v, self, inputs)
        node = apply_to(self, inputs)
        default = self.default_output
        if default is not None and not (type(default) is int and 0 <= default < len(node.outputs)):
            raise BridgeTypeError(
                f"{type(self).__qualname__}.default_output is the number of one of the "
                f"{len(node.outputs)} outputs, or None, not {default!r}"
            )
        if name is not None:
            if len(node.outputs) != 1 and default is None:
                raise BridgeTypeError(f"{self} has {len(node.outputs)} outputs: name them apart")
            node.outputs[default or 0].name = name
        if default is not None:
            return node.outputs[default]
        return node.outputs[0] if len(node.outputs) == 1 else node.outputs

    # A subclass may define `connection_pattern(node)`: for each input, a list that says of each
    # output whether its gradient flows to that input. And `L_op(inputs, outputs, output_grads)`,
    # which is then asked instead of `grad`.

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        """One gradient per input, None where the op is not differentiable in that one."""
        raise MissingMethodError(f"{self} has no gradient: {type(self).__name__} lacks grad")

    # In Python
    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        """Computes the outputs into output_storage: lists of one element, which holds an old
        value that may be used again, or None. It returns None."""
        raise MissingMethodError(
            f"{self} cannot be run in Python: {type(self).__name__} lacks perform"
        )

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, as torch.export is to record them. `perform` does where it calls torch on
        what it gets; sizes and numbers are torch.SymInt and the like, which `int()` would fix."""
        storage: list[Storage] = [[None] for _ in node.outputs]
        run_perform(node, inputs, storage)
        return [cell[0] for cell in storage]

    # In C
    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        """C that computes the outputs' variables from the inputs'. `name` is unique to the node.
        MissingMethodError (a NotImplementedError): this node runs `perform`."""
        raise MissingMethodError(f"{self} has no C code: {type(self).__name__} lacks c_code")

    def c_code_cleanup(
        self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        """C that runs after c_code, also where it failed."""
        return ""

    def c_support_code_apply(self, node: Apply, name: str) -> str:
        """Functions for this node alone."""
        return ""

    # A compiled function has a struct of its own, in which nodes may keep something between calls:
    # buffers, plans, a counter. c_code names the members as they are declared. Calls from several
    # threads take turns. An op whose outputs depend on its state is `random`.

    def c_support_code_struct(self, node: Apply, name: str) -> str:
        """Declares the members of a node, each with `name` in its own name. They begin as zeros."""
        return ""

    def c_init_code_struct(self, node: Apply, name: str, sub: Sub) -> str:
        """C that runs when a function is made, with the interpreter: initialises the members."""
        return ""

    def c_cleanup_code_struct(self, node: Apply, name: str) -> str:
        """C that runs when a function ends, with the interpreter, and where c_init_code_struct of
        this node or of a later one has failed: frees what the members hold."""
        return ""

    def c_needs_gil(self, node: Apply) -> bool:
        """Whether c_code uses the Python interpreter; what does not lets other threads run."""
        return True


_Closed = TypeVar("_Closed", bound=type[Op])


def closed(kind: _Closed) -> _Closed:
    """Decorates a class of ops that cannot be derived from, because rewrites, linkers and gradients
    know what its ops compute."""

    def refuse(derived: type[Any], /, **kwargs: Any) -> None:
        raise BridgeTypeError(
            f"{derived.__qualname__} derives from {kind.__qualname__}, whose ops are known to "
            "rewrites: derive from Op, and apply the other op in make_node or in perform"
        )

    kind.__init_subclass__ = classmethod(refuse)  # type: ignore[method-assign, assignment]
    return kind


def apply_to(op: Op, inputs: Sequence[Any]) -> Apply:
    """What make_node returns, which must be an Apply."""
    node = op.make_node(*inputs)
    if not isinstance(node, Apply):
        raise BridgeTypeError(
            f"make_node of {op} returned {node!r} of type {type(node).__name__}; it must return an "
            "Apply: Apply(self, [inputs], [outputs])"
        )
    return node


def has_perform(op: Op) -> bool:
    return type(op).perform is not Op.perform


_OF_STATE = ("c_support_code_struct", "c_init_code_struct", "c_cleanup_code_struct")


def has_state(op: Op) -> bool:
    """Whether an op's C code has something between calls."""
    return any(getattr(type(op), m, None) not in (None, getattr(Op, m)) for m in _OF_STATE)


def run_perform(node: Apply, inputs: Sequence[Any], storage: Sequence[Storage]) -> None:
    """Runs `perform`, and checks that it has stored what it computed. Whoever wants an output in
    memory of his own passes storage that holds it."""
    fresh = [len(cell) == 1 and cell[0] is None for cell in storage]
    returned = node.op.perform(node, inputs, storage)  # type: ignore[func-returns-value]
    if returned is not None:
        raise ContractError(
            f"perform of {node.op} returned a {type(returned).__name__}; it must store output i "
            "with output_storage[i][0] = value, and return nothing"
        )
    for i, (cell, v) in enumerate(zip(storage, node.outputs, strict=True)):
        if len(cell) != 1:
            raise ContractError(
                f"perform of {node.op} resized the storage of output {i} to {len(cell)} elements"
            )
        nothing = fresh[i] and cell[0] is None and not node.op.leaves_out
        if nothing and not v.type.is_valid_value(None):
            raise ContractError(
                f"perform of {node.op} stored no output {i}, of type {v.type}: it must set "
                f"output_storage[{i}][0]"
            )


class CallsTorch(Op):
    """An op whose C code calls functions of cgotorch.h, and nothing of Python."""

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h"]

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)
