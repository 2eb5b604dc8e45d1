"""Python functions whose calls are seen.

A proxy can see its own attributes, methods and operators, but not that it is given to `len`, to
`math.sqrt` or to any other function. So a traced function is compiled a second time from its
source, with each call `f(x)` as `call(f, x)`; nothing else is changed, and file names and lines
stay, so that tracebacks and debuggers show the author's code. Names are looked up as in the
function itself: globals, enclosing variables and defaults are shared with it.

A function without source, made by exec for instance, gets copies of those of its global and
enclosing names that stand for functions that are to be seen. There, a function that is reached in
another way, such as `math.sqrt`, is not seen unless it asks its arguments, as PyTorch's do.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import CO_OPTIMIZED
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

CALL = "__pb_call__"

# Calls whose meaning is in where they stand.
_KEPT = frozenset(["super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"])
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_codes: WeakKeyDictionary[CodeType, CodeType | None] = WeakKeyDictionary()

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _Calls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _KEPT:
            return node
        seen = ast.Call(ast.Name(CALL, ast.Load()), [node.func, *node.args], node.keywords)
        return ast.fix_missing_locations(ast.copy_location(seen, node))


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
    parameters = [ast.arg(n) for n in dict.fromkeys((*code.co_freevars, CALL))]
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


def _alike(a: CodeType, b: CodeType, exactly: bool) -> bool:
    """Whether two code objects may come from one text. Instructions differ a little between a file
    that imports a module and one function of it, so they are compared only where the text has
    several functions in one line."""
    constants = [
        [type(c) for c in code.co_consts if not isinstance(c, (CodeType, str))] for code in (a, b)
    ]
    return (
        a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and constants[0] == constants[1]
        and (not exactly or (a.co_code == b.co_code and a.co_consts == b.co_consts))
    )


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
    lines = linecache.getlines(code.co_filename)
    tree = _parsed(code.co_filename, "".join(lines)) if lines else None
    if tree is None:
        return None
    found = [
        (node, owner)
        for node, owner in _functions(tree)
        if _line(node) == code.co_firstlineno
        and (getattr(node, "name", "<lambda>") == code.co_name)
    ]
    for node, owner in found:
        plain = _compiled(_without_defaults(_copy(node)), owner, code)
        # Another version of the file, or another lambda of the line, is not this function.
        if plain is None or not _alike(plain, code, len(found) > 1):
            continue
        changed = _Calls().visit(_without_defaults(_copy(node)))
        return _compiled(changed, owner, code)
    return None


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


def _names(code: CodeType) -> set[str]:
    """The global names that code may use, with those of the functions in it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _with_names(
    function: FunctionType, call: Callable[..., Any], seen: Callable[[Any], bool]
) -> FunctionType:
    """The function with other values for the names of functions that are to be seen."""
    known = function.__globals__
    changed = dict(known)
    for name in _names(function.__code__):
        value = known.get(name, getattr(builtins, name, None))
        if callable(value) and seen(value):
            changed[name] = _Seen(value, call)
    cells = []
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            value = None
        wanted = callable(value) and seen(value)
        cells.append(CellType(_Seen(value, call)) if wanted else cell)
    made = FunctionType(
        function.__code__, changed, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def rewritten(
    function: FunctionType,
    call: Callable[..., Any],
    seen: Callable[[Any], bool] = lambda value: True,
) -> FunctionType:
    """The function with each call `f(...)` as `call(f, ...)`; where its source is not there, for
    functions that it has names for and that are to be `seen`."""
    code = function.__code__
    if code not in _codes:
        _codes[code] = _rewritten(code)
    changed = _codes[code]
    if changed is None:
        return _with_names(function, call, seen)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[CALL] = CellType(call)
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
