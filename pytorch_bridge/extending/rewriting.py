"""Python functions whose calls are seen.

A proxy can see its own attributes, methods and operators, but not that it is given to `len`, to
`math.sqrt` or to any other function. So a traced function is compiled a second time from its
source, with each call `f(x)` as `call(f, x)`; nothing else is changed, and file names and lines
stay, so that tracebacks and debuggers show the author's code. Names are looked up as in the
function itself: globals, enclosing variables and defaults are shared with it.

A function without source, made by exec for instance, or whose file has changed since it was
imported, gets copies of those of its global and enclosing names that stand for functions that are
to be seen, and for modules, of which functions such as `math.sqrt` are read. There, a class that is
called and looked at in one function (`int(x)` and `type(x) is int`) is not seen.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import linecache
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import CO_OPTIMIZED
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from ..sameness import same

CALL, READ, CONTAINS, OWNER = "__pb_call__", "__pb_read__", "__pb_contains__", "__pb_owner__"
_ADDED = (CALL, READ, CONTAINS, OWNER)

# Calls whose meaning is in where they stand.
_KEPT = frozenset(["super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"])
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_lock = threading.Lock()
_codes: WeakKeyDictionary[CodeType, CodeType | None] = WeakKeyDictionary()
_inner: WeakSet[CodeType] = WeakSet()  # of functions within those that were rewritten

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _Calls(ast.NodeTransformer):
    """Calls and reads as calls of functions that see them."""

    def _seen(self, node: Any, *arguments: ast.expr) -> ast.AST:
        name = CALL if len(arguments) > 1 or isinstance(node, ast.Call) else READ
        keywords = node.keywords if isinstance(node, ast.Call) else []
        seen = ast.Call(ast.Name(name, ast.Load()), list(arguments), keywords)
        return ast.fix_missing_locations(ast.copy_location(seen, node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in _KEPT:
            node.args = [self.visit(a) for a in node.args]
            node.keywords = [self.visit(k) for k in node.keywords]
            return node
        self.generic_visit(node)
        return self._seen(node, node.func, *node.args)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._seen(node, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        owner = ast.Call(ast.Name(OWNER, ast.Load()), [node.value, ast.Constant(node.attr)], [])
        node.value = ast.copy_location(owner, node.value)
        return self._seen(node, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return self._seen(node, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a in b` is what `operator.contains` is registered for, and no bool of Python."""
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.In):
            return node
        contains = ast.Name(CONTAINS, ast.Load())
        return self._seen(node, contains, node.left, node.comparators[0])

    # Where only a name may stand
    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = self.visit(node.guard) if node.guard is not None else None
        node.body = [self.visit(n) for n in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


@lru_cache(maxsize=64)
def _parsed(file: str, text: str) -> ast.Module | None:
    try:
        return ast.parse(text, file)
    except SyntaxError:
        return None


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[_Function, str]]:
    """Every function in a file with the name of the class that it is in."""
    for node in ast.iter_child_nodes(tree):
        inside = owner
        if isinstance(node, ast.ClassDef):
            inside = node.name
        elif isinstance(node, _Function):
            yield node, owner
        yield from _functions(node, inside)


def _line(node: _Function) -> int:
    """The line that a function's code object says it begins at."""
    if isinstance(node, ast.Lambda):
        return node.lineno
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def _compiled(node: _Function, owner: str, code: CodeType) -> CodeType | None:
    """The code of one function, compiled alone in an environment with the same free names."""
    bare: ast.stmt
    if isinstance(node, ast.Lambda):
        bare = ast.Expr(node)
    else:
        bare = type(node)(
            **{
                **{f: getattr(node, f) for f in node._fields},
                "decorator_list": [],
                "returns": None,
            }
        )
        ast.copy_location(bare, node)
    body: list[ast.stmt] = [bare]
    if owner:  # names such as __x mean another one in a class
        body = [ast.ClassDef(owner.lstrip("_") or "C", [], [], body, [])]
        if hasattr(ast, "type_param"):
            body[0].type_params = []  # type: ignore[attr-defined]
    parameters = [ast.arg(n) for n in dict.fromkeys((*code.co_freevars, *_ADDED))]
    outer = ast.parse("def __pb_outer__(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = parameters
    if not owner and not isinstance(node, ast.Lambda) and code.co_name not in code.co_freevars:
        body = [ast.Global([code.co_name]), *body]  # its own name is no variable of the outer one
    outer.body = body
    module = ast.fix_missing_locations(ast.Module([outer], []))
    flags = code.co_flags & _FUTURES
    made = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    pending = [c for c in made.co_consts if isinstance(c, CodeType)]
    for found in pending:
        if found.co_name == code.co_name and found.co_flags & CO_OPTIMIZED:  # no class
            return found
        pending += [c for c in found.co_consts if isinstance(c, CodeType)]
    return None


def _alike(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects come from one text, with the functions inside."""
    return (
        a.co_code == b.co_code
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_freevars == b.co_freevars
        and len(a.co_consts) == len(b.co_consts)
        and all(
            _alike(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else same(x, y)
            for x, y in zip(a.co_consts, b.co_consts, strict=True)
        )
    )


@lru_cache(maxsize=64)
def _codes_of(file: str, text: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """The code objects of a file as Python compiles it, by name and line."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    try:
        pending = [compile(text, file, "exec", flags, dont_inherit=True)]
    except (SyntaxError, ValueError):
        return found
    while pending:
        code = pending.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        pending += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


_Span = tuple[int, int]


def _spans(code: CodeType) -> tuple[_Span, _Span] | None:
    """Where in the text the instructions of a function are, from the first to the last."""
    found = [
        ((line, column), (last, end))
        for line, last, column, end in code.co_positions()
        if None not in (line, last, column, end) and (column, end) != (0, 0)
    ]
    if not found:
        return None
    return min(f for f, _ in found), max(e for _, e in found)  # type: ignore[return-value]


def _around(node: _Function, span: tuple[_Span, _Span]) -> bool:
    """Whether a function's text contains a span, in one that is a lambda its body."""
    whole: Any = node.body if isinstance(node, ast.Lambda) else node
    first, last = (whole.lineno, whole.col_offset), (whole.end_lineno, whole.end_col_offset)
    return bool(first <= span[0] and span[1] <= last)


def _copy(node: Any) -> Any:
    """A copy of a syntax tree."""
    if isinstance(node, list):
        return [_copy(n) for n in node]
    if not isinstance(node, ast.AST):
        return node
    made = type(node)(**{f: _copy(getattr(node, f, None)) for f in node._fields})
    return ast.copy_location(made, node)


def _without_defaults(node: _Function) -> _Function:
    """The function takes its defaults from the original."""
    node.args.defaults = []
    node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    arguments = node.args
    for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        a.annotation = None
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            extra.annotation = None
    return node


def _rewritten(code: CodeType) -> CodeType | None:
    text = "".join(linecache.getlines(code.co_filename))
    tree = _parsed(code.co_filename, text) if text else None
    if tree is None:
        return None
    # The file may be another one than it was when it was imported.
    known = _codes_of(code.co_filename, text, code.co_flags & _FUTURES)
    candidates = known.get((code.co_name, code.co_firstlineno), ())
    if not any(_alike(c, code) for c in candidates):
        return None
    found = [
        (node, owner)
        for node, owner in _functions(tree)
        if _line(node) == code.co_firstlineno
        and (getattr(node, "name", "<lambda>") == code.co_name)
    ]
    span = _spans(code)
    if len(found) > 1 and span is not None:  # several in one line
        found = [(node, owner) for node, owner in found if _around(node, span)]
        found = found[-1:]  # the innermost
    for node, owner in found[:1]:
        changed = _without_defaults(_copy(node))
        if isinstance(changed, ast.Lambda):
            changed.body = _Calls().visit(changed.body)
        else:
            changed.body = [_Calls().visit(n) for n in changed.body]
        return _compiled(changed, owner, code)
    return None


def within(item: Any, container: Any) -> Any:
    """What `item in container` calls."""
    return item in container


class _Seen:
    """Stands for a function or a class under its name."""

    def __init__(self, function: Any, call: Callable[..., Any]) -> None:
        self._function, self._call = function, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._function, *args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __eq__(self, other: object) -> bool:
        return self._function == (other._function if isinstance(other, _Seen) else other)

    def __hash__(self) -> int:
        return hash(self._function)


def _values(code: CodeType) -> set[str]:
    """The names that code uses for more than to call them."""
    found: set[str] = set()
    before = None
    for made in dis.get_instructions(code):
        called = "NULL" in made.argrepr or (before is not None and before.opname == "PUSH_NULL")
        if made.opname.startswith("LOAD_") and isinstance(made.argval, str) and not called:
            found.add(made.argval)
        before = made
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _values(constant)
    return found


def _names(code: CodeType) -> set[str]:
    """The global names that code may use, with those of the functions in it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


class _SeenModule(ModuleType):
    """Stands for a module under its name: what is read of it is seen."""

    def __init__(self, module: ModuleType, stand_in: Callable[[Any], Any]) -> None:
        object.__getattribute__(self, "__dict__").update(_module=module, _stand_in=stand_in)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        return own["_stand_in"](getattr(own["_module"], name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "__dict__")["_module"], name, value)


def _with_names(
    function: FunctionType,
    call: Callable[..., Any],
    read: Callable[[Any], Any],
    seen: Callable[[Any], bool],
) -> FunctionType:
    """The function with other values for the names of functions that are to be seen, and of
    modules."""
    known, values = function.__globals__, _values(function.__code__)

    def stand_in(value: Any, name: str = "") -> Any:
        if isinstance(value, type) and name in values:
            return value  # `type(x) is int` looks at the class itself
        if isinstance(value, ModuleType):
            return _SeenModule(value, stand_in)
        return _Seen(value, call) if callable(value) and seen(value) else read(value)

    changed = dict(known)
    for name in _names(function.__code__):
        if name in known or hasattr(builtins, name):
            changed[name] = stand_in(known.get(name, getattr(builtins, name, None)), name)
    cells = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            cells.append(cell)
            continue
        other = stand_in(value, name)
        cells.append(cell if other is value else CellType(other))
    made = FunctionType(
        function.__code__, changed, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _within(constant)


def made_inside(function: FunctionType) -> bool:
    """Whether a function was defined by one that was rewritten, when that ran."""
    return function.__code__ in _inner


def rewritten(
    function: FunctionType,
    call: Callable[..., Any],
    read: Callable[[Any], Any],
    owner: Callable[[Any, str], Any],
    seen: Callable[[Any], bool] = lambda value: True,
) -> FunctionType:
    """The function with each call `f(...)` as `call(f, ...)`, each name that it reads as
    `read(name)`, and each attribute as `read(owner(x, "name").name)`; where its source is not
    there, for functions that it has names for and that are to be `seen`."""
    code = function.__code__
    if code in _inner:
        return function
    with _lock:  # CPython's ast is not for several threads
        if code not in _codes:
            fresh = _codes[code] = _rewritten(code)
            if fresh is not None:
                _inner.update(_within(fresh))
        changed = _codes[code]
    if changed is None:
        return _with_names(function, call, read, seen)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    for name, value in zip(_ADDED, (call, read, within, owner), strict=True):
        cells[name] = CellType(value)
    made = FunctionType(
        changed,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[n] for n in changed.co_freevars),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    return made
