"""Writes the C function of a graph from what its types and ops write.

`Emitter` writes it for Python: inputs and outputs are Python objects, and what has no C code runs
in the interpreter. `pytorch_bridge.packages.c_function` has the one for C and Go.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError
from ..graph.basic import Apply, Constant, Variable
from ..ops.op import has_state, run_perform
from ..sameness import key
from ..types import SchemaType
from ..types.base import CType, Sub, Type, generic
from ..types.literals import CLiteral
from .blocks import Block, braced, nest, remark
from .compile import GraphCompiler
from .declarations import declared, mentions, statements, without_text
from .explain import Explainer, GraphPlace

if TYPE_CHECKING:
    from .c_linker import CLinker

# Around code that calls PyTorch: ops record no graph, which a compiled graph does not have.
_ENTER_TORCH = "cgotorch_graph_enter(&pb_torch);"
_LEAVE_TORCH = "cgotorch_graph_leave(&pb_torch);"


# The function of a long graph: the time to optimise it grows with the square of its length, to
# a minute for a model of a thousand nodes, and calls one after the other gain nothing by it. What
# has loops is in functions of its own, which are optimised.
_CALLS_ONLY = """\
#if defined(__clang__)
#define PB_CALLS_ONLY __attribute__((optnone))
#elif defined(__GNUC__)
#define PB_CALLS_ONLY __attribute__((optimize("O0")))
#else
#define PB_CALLS_ONLY
#endif"""
_LONG = 150  # variables and nodes of a graph

_LOOP = re.compile(r"\b(for|while|do)\b")


_STATE_END = "pb_end_state"
# Members of C++ may have constructors. Others begin as zeros in both.
_MAKES_STATE = """\
#ifdef __cplusplus
#include <new>
#define PB_NEW_STATE() new (std::nothrow) struct pb_state()
#define PB_FREE_STATE(state) delete (state)
#else
#define PB_NEW_STATE() PyMem_RawCalloc(1, sizeof(struct pb_state))
#define PB_FREE_STATE(state) PyMem_RawFree(state)
#endif"""
_GIVEN_STATE = "struct pb_state *pb_state = (struct pb_state *){};"

_signatures: dict[Any, list[inspect.Parameter]] = {}


def parameters_of(owner: Any, method: str) -> list[inspect.Parameter]:
    """The parameters of a method as it is called; those of a class are looked at once."""
    own = method in getattr(owner, "__dict__", ())
    key = getattr(type(owner), method, None)
    if own or key not in _signatures:
        try:
            found = list(inspect.signature(getattr(owner, method)).parameters.values())
        except (TypeError, ValueError):
            found = []
        if own:
            return found
        _signatures[key] = found
    return _signatures[key]


def check_argument(owner: Any, method: str, check_input: bool) -> dict[str, bool]:
    """The argument check_input, for a method that takes it."""
    takes = any(
        p.name == "check_input" or p.kind is p.VAR_KEYWORD for p in parameters_of(owner, method)
    )
    return {"check_input": check_input} if takes else {}


def about(owner: Any, method: str, compiler: GraphCompiler) -> Any:
    """What a method such as c_headers returns, with the compiler as an argument or without; None
    where owner lacks it."""
    function = getattr(owner, method, None)
    if function is None:
        return None
    parameters = parameters_of(owner, method)
    if any(p.name == "c_compiler" or p.kind is p.VAR_KEYWORD for p in parameters):
        return function(c_compiler=compiler)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind in positional and p.default is p.empty for p in parameters):
        return function(compiler)
    return function()


def texts(value: str | Iterable[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def written(owner: Any, method: str, code: Any) -> str:
    """The C code that a method has returned. BridgeTypeError where it is no str."""
    if not isinstance(code, str):
        raise BridgeTypeError(
            f"{method} of {owner_name(owner)} returned {code!r}; it must return C code as a str"
        )
    return code


def owner_name(owner: Any) -> str:
    return type(owner).__name__ if isinstance(owner, Type) else f"{owner} ({type(owner).__name__})"


def has_c(type_: Type) -> bool:
    """Whether values of a type have a form in C."""
    type_ = type_.required if isinstance(type_, SchemaType) else type_
    methods = [getattr(type_, m, None) for m in ("c_declare", "c_extract", "c_sync")]
    if any(m is None for m in methods):
        return False
    return getattr(type(type_), "c_declare", None) is not CType.c_declare


def literal_of(type_: Type, value: Any) -> CLiteral | None:
    """A value that is known, in C; None where the type has no literal for it."""
    if isinstance(type_, SchemaType):
        return type_.literal(value)
    text = getattr(type_, "c_literal", lambda _: None)(value)
    return None if text is None else CLiteral("", text)


class _PythonType(Type):
    """Stands for a type without C: its values stay Python objects, which `filter` checks."""

    def __init__(self, type_: Type, filter_: str) -> None:
        self.type = type_
        self.filter_ = filter_  # the C expression of the function that filters a value

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return generic.c_declare(name, sub)

    def c_init(self, name: str, sub: Sub) -> str:
        return generic.c_init(name, sub)

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        if not check_input:
            return generic.c_extract(name, sub)
        return (
            f"{name} = PyObject_CallOneArg({self.filter_}, py_{name});\n"
            f"if (!{name}) {{\n{sub['fail']}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return generic.c_sync(name, sub)

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return generic.c_cleanup(name, sub)

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)


class Perform:
    """What a compiled graph calls for a node that has no C code."""

    def __init__(self, node: Apply) -> None:
        self.node = node

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        storage: list[list[Any]] = [[None] for _ in self.node.outputs]
        run_perform(self.node, list(inputs), storage)
        return tuple(s[0] for s in storage)


class NodeState(NamedTuple):
    """What a node has between calls: the members that it declares, and the code around them."""

    node: Apply
    members: str
    enter: str
    leave: str


class Emitter:
    """The C function of a graph, and what was met on the way.

    It is for Python: inputs are extracted from the Python objects py_<name>, outputs synced to
    them.
    """

    def __init__(self, linker: CLinker) -> None:
        self.linker = linker
        self.input_numbers = {v: i for i, v in enumerate(linker.inputs)}
        self.outputs = dict.fromkeys(linker.outputs)
        self.constants: list[Any] = []  # what the function finds in pb->constants
        self.places: list[GraphPlace] = []
        self.owners: list[Any] = []  # types and ops, each once, whose code is in
        self.support: list[str] = []  # what belongs to one node
        self.states: list[NodeState] = []
        self.apply_versions: dict[int, list[Any]] = {}  # by the op
        self.names: dict[Variable, str] = {}  # in C
        self.literals: dict[Variable, str] = {}
        self.types: dict[Variable, Any] = {}  # with the methods that write C
        self._owners: dict[Any, Any] = {}
        self._types_declared: set[str] = set()
        self._loops = False  # whether a node has a loop in the function itself
        self.explain = Explainer(linker.inputs, linker.outputs, linker.order, [])
        self.variables = self._number()
        self.explain.in_c = {c: self.explain.names[v] for v, c in self.names.items()}
        self.body = self._function()
        self.state = self._state_code()
        self.explain.places = self.places

    def _own(self, owner: Any) -> Any:
        """Takes in the code of a type or an op; returns the one that the code is taken from."""
        found = self._owners.setdefault(key(owner), owner)
        if found is owner and not any(owner is o for o in self.owners):
            self.owners.append(owner)
        return found

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"pb->constants[{len(self.constants) - 1}]"

    def _number(self) -> list[Variable]:
        """Names the variables: inputs, then constants and outputs node by node."""
        linker = self.linker
        found: dict[Variable, None] = dict.fromkeys(linker.inputs)
        for node in linker.order:
            for v in [*node.inputs, *node.outputs]:
                found.setdefault(v, None)
        for v in linker.outputs:
            found.setdefault(v, None)
        made = set(linker.inputs).union(*(node.outputs for node in linker.order))
        variables = []
        for v in found:
            if v not in made and not isinstance(v, Constant):
                raise BridgeValueError(f"{v} is neither an input of the graph nor computed in it")
            if isinstance(v, Constant) and v not in made and v not in self.outputs:
                literal = literal_of(v.type, v.data)
                # What others write may be a struct, which is no expression of C++.
                own = isinstance(v.type, SchemaType)
                if literal is not None and literal.inline and (own or "{" not in literal.value):
                    self.literals[v] = f"({literal})"
                    continue
            variables.append(v)
        for i, v in enumerate(variables):
            self.names[v] = f"V{i + 1}"
        return variables

    def _type(self, v: Variable) -> Any:
        """What writes the C for a variable: its type, or what stands for one without C."""
        if v not in self.types:
            if has_c(v.type):
                self.types[v] = v.type
            elif self.linker.demand_c:
                raise MissingMethodError(
                    f"{self.explain.names[v]}: the type {v.type} has no C code, which is demanded"
                )
            else:
                self.types[v] = _PythonType(v.type, self._constant(v.type.filter))
            self._own(v.type if has_c(v.type) else generic)
        return self.types[v]

    def _fail(self, place: GraphPlace, label: str) -> str:
        self.places.append(place)
        return f"{{ pb_failed = {len(self.places)}; goto {label}; }}"

    @property
    def attributes(self) -> str:
        """What stands before the function."""
        long = len(self.variables) + len(self.linker.order) > _LONG
        return "PB_CALLS_ONLY " if long and not self._loops else ""

    def macros(self) -> list[str]:
        """What `attributes` needs."""
        return [_CALLS_ONLY] if self.attributes else []

    # Variables

    def _checks_input(self, v: Variable, clients: dict[Variable, list[Apply]]) -> bool:
        """Whether someone needs the checks: an op that does not say otherwise, or the caller, who
        gets v back."""
        ops = [node.op for node in clients.get(v, [])]
        return not ops or any(op.check_input for op in ops)

    def _declare(self, v: Variable, check: bool) -> str:
        name, type_ = self.names[v], self._type(v)
        sub = {"fail": "#error sub['fail'] in c_declare"}
        code = type_.c_declare(name, sub, **check_argument(type_, "c_declare", check))
        written(type_, "c_declare", code)
        for identifier in declared(code):
            if identifier in (f"py_{name}", f"storage_{name}"):
                raise BridgeTypeError(
                    f"{type(type_).__name__}.c_declare declares {identifier}, which the linker "
                    "itself declares"
                )
            if not mentions(identifier, name):
                raise BridgeTypeError(
                    f"{type(type_).__name__}.c_declare declares {identifier!r}, whose name does "
                    f"not contain {name!r}, the name it was given"
                )
        if "#" in code or not any(w in code for w in ("typedef", "struct", "union", "enum")):
            return code
        # Variables of one type may all define the same C type: once is enough.
        lines = []
        for statement in statements(code):
            definition, brace, variables = statement.rpartition("}")
            tag = re.match(r"((?:struct|union|enum)\s+\w+)\s*\{", statement)
            if declared(statement + ";") and brace and tag:
                if definition in self._types_declared:
                    statement = tag[1] + variables
                self._types_declared.add(definition)
            elif statement in self._types_declared and not declared(statement + ";"):
                continue
            self._types_declared.add(statement)
            lines.append(statement + ";")
        return "\n".join(lines)

    def _extract(self, v: Variable, sub: Sub, check: bool) -> str:
        type_ = self._type(v)
        sub = {**sub, "variable": f"{{{self.names[v]}}}"}  # which errors put the name for
        code = type_.c_extract(self.names[v], sub, **check_argument(type_, "c_extract", check))
        return written(type_, "c_extract", code)

    def _sync(self, v: Variable, sub: Sub) -> str:
        type_ = self._type(v)
        return written(type_, "c_sync", type_.c_sync(self.names[v], sub))

    def _variable(self, v: Variable, check: bool) -> Block:
        name, type_ = self.names[v], self._type(v)
        label = f"pb_end_{name}"
        title = f"{name} is {self.explain.names[v]}: {v.type}"
        if v in self.input_numbers:
            place = GraphPlace("extract", v, input=self.input_numbers[v])
            enter = self._extract(v, {"fail": self._fail(place, label)}, check)
        elif self._is_constant(v):
            fail = self._fail(GraphPlace("extract", v), label)
            enter = self._extract(v, {"fail": fail, "constant": "1"}, False)
        else:
            fail = self._fail(GraphPlace("init", v), label)
            enter = written(type_, "c_init", type_.c_init(name, {"fail": fail}))
        cleanup = getattr(type_, "c_cleanup", lambda *_: "")(name, {"fail": "#error"})
        leave = braced(written(type_, "c_cleanup", cleanup))
        if v in self.outputs:
            synced = f"pb_synced_{name}"
            sync = self._sync(v, {"fail": self._fail(GraphPlace("sync", v), synced)}).strip()
            end = [f"{synced}:;"] if f"goto {synced};" in sync else []
            leave = "\n".join([f"if (!pb_failed) {{\n{sync}\n}}", *end, leave])
        return Block(label, title, braced(enter), leave)

    # Nodes

    def _c_code(
        self, node: Apply, name: str, inputs: Sequence[str], outputs: Sequence[str], sub: Sub
    ) -> str:
        return written(node.op, "c_code", node.op.c_code(node, name, inputs, outputs, sub))

    def _node(self, i: int, node: Apply) -> tuple[Block, bool]:
        """The block of a node, and whether it needs the interpreter."""
        op = node.op
        label = f"pb_end_node_{i}"
        title = f"{i}: {self.explain.names.line(node)}"
        variables = [v for v in [*node.inputs, *node.outputs] if v not in self.literals]
        in_c = all(self._type(v) is v.type for v in variables)
        if in_c:
            name = f"node_{i}"
            inputs = [self.literals.get(v) or self.names[v] for v in node.inputs]
            outputs = [self.names[v] for v in node.outputs]
            fail = self._fail(GraphPlace("code", node=node), label)
            sub = {"fail": fail}
            try:
                code = self._c_code(node, name, inputs, outputs, sub)
                self._loops |= not op.only_calls and has_loop(code)
            except NotImplementedError as e:
                in_c = False
                if self.linker.demand_c:
                    reason = "" if str(e).startswith(f"{op} has no C code") else f": {e}"
                    raise MissingMethodError(
                        f"node {i}, {self.explain.names.line(node)}: {op} has no C code, which is "
                        f"demanded{reason}"
                    ) from None
        if not in_c:
            return Block(label, title, self._perform(i, node, label)), True
        owner = self._own(op)
        cleanup = optional_method(op, "c_code_cleanup", node, name, inputs, outputs, sub)
        self.support += texts(optional_method(op, "c_support_code_apply", node, name))
        self._state(node, name)
        if hasattr(op, "c_code_cache_version_apply"):
            found = self.apply_versions.setdefault(id(owner), [])
            found.append(tuple(op.c_code_cache_version_apply(node)))
        return Block(label, title, braced(code), braced(cleanup or "")), op.c_needs_gil(node)

    def _state(self, node: Apply, name: str) -> None:
        """Takes in what a node has between calls."""
        op = node.op
        if not has_state(op):
            return

        def code(method: str, *more: Any) -> str:
            found = optional_method(op, method, node, name, *more)
            return written(op, method, "" if found is None else found).strip()

        members = code("c_support_code_struct")
        for identifier in declared(members):
            if not mentions(identifier, name):
                raise BridgeTypeError(
                    f"c_support_code_struct of {owner_name(op)} declares {identifier!r}, whose "
                    f"name does not contain {name!r}, the name it was given"
                )
        fail = self._fail(GraphPlace("init", node=node), _STATE_END)
        enter = code("c_init_code_struct", {"fail": fail})
        leave = code("c_cleanup_code_struct")
        # What it raises and does not fail for would be raised by whatever comes next.
        enter = f"{braced(enter)}\nif (PyErr_Occurred()) {fail}" if enter else ""
        self.states.append(NodeState(node, members, enter, leave))

    def _state_code(self) -> tuple[str, str]:
        """The struct of what the nodes have between calls, with a name for each member, and the
        functions that begin and end it."""
        if not self.states:
            return "", ""
        members = [s.members for s in self.states]
        names = [n for m in members for n in dict.fromkeys(declared(m))]
        head = [
            _MAKES_STATE,
            "struct pb_state {",
            "int pb_begun;",
            *(m for m in members if m),
            "};",
            *(f"#define {n} (pb_state->{n})" for n in names),
        ]
        leave = []
        for i, s in reversed([*enumerate(self.states, 1)]):
            if s.leave:
                leave.append(f"if (pb_state->pb_begun >= {i}) {braced(s.leave)}")
        place = GraphPlace("init", node=self.states[0].node)
        enter = []
        for i, s in enumerate(self.states, 1):
            enter += [remark(self.explain.names.line(s.node)), f"pb_state->pb_begun = {i};"]
            enter.append(s.enter)
        functions = [
            "void pb_graph_end(void *pb_given) {",
            _GIVEN_STATE.format("pb_given"),
            *leave,
            "PB_FREE_STATE(pb_state);",
            "}",
            "",
            "int pb_graph_begin(struct pb_call *pb) {",
            "int pb_failed = 0;",
            "const char *pb_error = NULL;",
            _GIVEN_STATE.format("PB_NEW_STATE()"),
            "if (pb_state == NULL) {",
            f"PyErr_NoMemory();\n{self._fail(place, 'pb_end')}",
            "}",
            *(line for line in enter if line),
            f"goto {_STATE_END};",
            f"{_STATE_END}:;",
            "if (pb_failed) {",
            # The cleanup may call what minds an exception that is set.
            "PyObject *pb_type, *pb_value, *pb_traceback;",
            "PyErr_Fetch(&pb_type, &pb_value, &pb_traceback);",
            "pb_graph_end(pb_state);",
            "pb_state = NULL;",
            "PyErr_Restore(pb_type, pb_value, pb_traceback);",
            "}",
            "pb_end:;",
            "pb->state = pb_state;",
            "pb->error = pb_error;",
            "return pb_failed;",
            "}",
        ]
        return "\n".join(head), "\n".join(functions)

    def _perform(self, i: int, node: Apply, label: str) -> str:
        """The call of `perform`: C variables become Python objects and back.

        c_sync may give away what a variable holds, so the inputs are extracted again.
        """
        end = f"pb_called_{i}"
        place = self._fail(GraphPlace("code", node=node), end)
        held = dict.fromkeys(v for v in node.inputs if not self._is_constant(v))
        head = [f"PyObject *py_{self.names[v]} = Py_NewRef(Py_None);" for v in held]
        head += [f"PyObject *py_{self.names[v]} = NULL;" for v in node.outputs]
        head.append("PyObject *pb_result = NULL;")
        body = []
        for v in held:
            fail = self._fail(GraphPlace("sync", v, node), end)
            body.append(braced(self._type(v).c_sync(self.names[v], {"fail": fail})))
        arguments = [
            self._constant(v.data) if isinstance(v, Constant) else f"py_{self.names[v]}"
            for v in node.inputs
        ]
        n = len(arguments)
        body.append(f"PyObject *pb_arguments[] = {{{', '.join(arguments) or 'NULL'}}};")
        function = self._constant(Perform(node))
        call = f"pb_result = PyObject_Vectorcall({function}, pb_arguments, {n}, NULL);"
        if any(self._calls_torch(other.op) for other in self.linker.order):
            call = f"{_LEAVE_TORCH}\n{call}\n{_ENTER_TORCH}"
        body.append(call)
        body.append(f"if (!pb_result) {place}")
        for k, v in enumerate(node.outputs):
            name = self.names[v]
            body.append(f"py_{name} = Py_NewRef(PyTuple_GET_ITEM(pb_result, {k}));")
            body.append(self._again(v, GraphPlace("extract", v, node), end, check=True))
        body += [self._again(v, GraphPlace("extract", v, node), end, check=False) for v in held]
        tail = [f"Py_XDECREF(py_{self.names[v]});" for v in [*node.outputs, *held]]
        tail.append("Py_XDECREF(pb_result);")
        tail.append(f"if (pb_failed) goto {label};")
        return braced("\n".join([*head, braced("\n".join(body)), f"{end}:;", *tail]))

    def _is_constant(self, v: Variable) -> bool:
        return isinstance(v, Constant) and v not in self.input_numbers

    def _again(self, v: Variable, place: GraphPlace, end: str, check: bool) -> str:
        cleanup = getattr(self._type(v), "c_cleanup", lambda *_: "")
        old = braced(cleanup(self.names[v], {"fail": "#error"}))
        new = braced(self._extract(v, {"fail": self._fail(place, end)}, check))
        return f"{old}\n{new}" if old else new

    def _released(self, i: int, last: dict[int, list[Variable]]) -> str:
        """Frees the values that no later node uses."""
        lines = []
        for v in last.get(i, []):
            release = getattr(self._type(v), "c_release", None)
            if release is not None:
                lines.append(release(self.names[v], {"fail": "#error"}))
        return "\n".join(lines)

    def _calls_torch(self, op: Any) -> bool:
        if parameters_of(op, "c_headers"):
            return False
        found = (written(op, "c_headers", h).strip('<"> ') for h in texts(op.c_headers()))
        return "cgotorch.h" in set(found)

    # The function

    def _function(self) -> str:
        linker = self.linker
        clients: dict[Variable, list[Apply]] = {}
        last: dict[Variable, int] = {}
        for i, node in enumerate(linker.order):
            for v in node.inputs:
                clients.setdefault(v, []).append(node)
            last.update(dict.fromkeys([*node.outputs, *node.inputs], i))
        kept = {*self.input_numbers, *self.outputs}
        ending: dict[int, list[Variable]] = {}
        for v, i in last.items():
            if v not in kept and not isinstance(v, Constant):
                ending.setdefault(i, []).append(v)

        head = ["int pb_failed = 0;", "const char *pb_error = NULL;"]
        blocks = []
        for v in self.variables:
            check = self._checks_input(v, clients)
            head.append(self._declare(v, check).strip())
            blocks.append(self._variable(v, check))
        nodes, need = [], []
        for i, node in enumerate(linker.order):
            block, needs = self._node(i, node)
            released = self._released(i, ending)
            if released:
                block.enter += "\n" + released
            nodes.append(block)
            need.append(needs)
        if nodes and not any(need):
            self._without_gil(head, blocks)
        if any(self._calls_torch(node.op) for node in linker.order):
            head.append("cgotorch_graph_state pb_torch;")
            blocks.append(Block("pb_end_torch", "below autograd", _ENTER_TORCH, _LEAVE_TORCH))
        return self._framed([h for h in head if h], nest([*blocks, *nodes]))

    def _without_gil(self, head: list[str], blocks: list[Block]) -> None:
        """Lets other Python threads run in what follows."""
        head.append("PyThreadState *pb_thread = NULL;")
        blocks.append(
            Block(
                "pb_end_threads",
                "other Python threads run meanwhile",
                "pb_thread = PyEval_SaveThread();",
                "PyEval_RestoreThread(pb_thread);",
            )
        )

    def _framed(self, head: list[str], body: str) -> str:
        """The function around its declarations and its code."""
        objects: dict[str, str] = {}  # py_<name>, each a reference, and what it begins as
        for v in self.variables:
            if v in self.input_numbers:
                value = f"pb->inputs[{self.input_numbers[v]}]"
            elif isinstance(v, Constant) and self._is_constant(v):
                value = self._constant(v.data)
            elif v in self.outputs:
                value = "Py_None"
            else:
                continue
            objects[f"py_{self.names[v]}"] = value
        lines = [f"{self.attributes}int pb_graph(struct pb_call *pb) {{"]
        lines += [f"PyObject *{name} = Py_NewRef({value});" for name, value in objects.items()]
        if self.states:
            lines += [_GIVEN_STATE.format("pb->state"), "(void)pb_state;"]
        lines += [*head, "(void)pb_error;", body]
        results = [
            f"pb->outputs[{i}] = Py_XNewRef(py_{self.names[v]});"
            for i, v in enumerate(self.linker.outputs)
        ]
        if results:
            lines += ["if (!pb_failed) {", *results, "}"]
        lines += [f"Py_XDECREF({name});" for name in objects]
        lines += ["pb->error = pb_error;", "return pb_failed;", "}"]
        return "\n".join(lines)


def has_loop(code: str) -> bool:
    """Whether a piece of C has a loop in sight; one that a macro hides, or a goto, is not seen."""
    return _LOOP.search(without_text(code)) is not None


def optional_method(owner: Any, method: str, *arguments: Any) -> Any:
    """What a method returns, None where owner lacks it or says that it does."""
    function = getattr(owner, method, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except NotImplementedError:
        return None
