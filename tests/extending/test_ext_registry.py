"""Registrations: remembered with file and line, never doubled, all of an extension or nothing."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import threading
from pathlib import Path

import pytest

from pytorch_bridge import registry
from pytorch_bridge.errors import MissingMethodError
from pytorch_bridge.extending import (
    DuplicateError,
    NativeValue,
    RegistrationError,
    TypingError,
    box,
    lower_builtin,
    lower_cast,
    lower_getattr,
    make_attribute_wrapper,
    models,
    overload,
    overload_method,
    register_model,
    temporary,
    transaction,
    typeof,
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.extending.resolution import resolve_call
from pytorch_bridge.registry import version

NAMES = [
    "overload",
    "overload_attribute",
    "overload_method",
    "make_attribute_wrapper",
    "register_model",
    "models",
    "typeof_impl",
    "typeof",
    "type_callable",
    "register_jitable",
    "intrinsic",
    "infer",
    "infer_getattr",
    "infer_global",
    "ConcreteTemplate",
    "AbstractTemplate",
    "AttributeTemplate",
    "CallableTemplate",
    "TypingError",
    "signature",
    "Signature",
    "lower_builtin",
    "lower_getattr",
    "lower_getattr_generic",
    "lower_setattr",
    "lower_setattr_generic",
    "lower_cast",
    "lower_constant",
    "box",
    "unbox",
    "NativeValue",
    "VarArg",
    "Any",
    "types",
]


def line_of(function) -> int:
    return function.__code__.co_firstlineno


def test_c1_one_module_has_every_name():
    module = importlib.import_module("pytorch_bridge.extending")
    for name in NAMES:
        assert hasattr(module, name), name
        assert name in module.__all__
    assert len(set(module.__all__)) == len(module.__all__)


def test_where_code_from_numba_looks():
    from pytorch_bridge import types
    from pytorch_bridge.extending import types as kinds

    assert types.Array is kinds.Array
    with pytest.raises(AttributeError, match="has no attribute 'Arrays'"):
        _ = types.Arrays
    from pytorch_bridge.typing.typeof import typeof_impl as there

    assert there is typeof_impl
    module = importlib.import_module("pytorch_bridge.extending")
    for owner, name, instead in (
        *((module, "jitclass", "typeof_impl"), (module, "prange", "in parallel")),
        *((kinds, "CPointer", "Opaque"), (kinds, "Optional", "None is a constant")),
    ):
        with pytest.raises(MissingMethodError, match=f"{name} is Numba's, .*{instead}"):
            getattr(owner, name)
    with pytest.raises(TypeError, match=r"a signature is signature\(int64, float64\)"):
        kinds.int64(kinds.float64)
    assert kinds.double is kinds.float64
    assert str(kinds.int64("n")) == "n"
    with pytest.raises(AttributeError, match="`specializations` has what was compiled"):
        _ = module.jit(lambda x: x).inspect_llvm


def test_registering_twice_names_both_places():
    class T(types.Type):
        pass

    def first(typ, val, c): ...
    def second(typ, val, c): ...

    box(T)(first)
    with pytest.raises(DuplicateError) as e:
        box(T)(second)
    assert f"{__file__}:{line_of(first)}" in str(e.value)
    assert f"{__file__}:{line_of(second)}" in str(e.value)


def test_c25_a_second_unboxer_is_a_key_error():
    class T(types.Type):
        pass

    @unbox(T)
    def one(typ, obj, c):
        return NativeValue(obj)

    with pytest.raises(KeyError, match="the unboxer for T is registered twice"):

        @unbox(T)
        def two(typ, obj, c):
            return NativeValue(obj)


@pytest.mark.parametrize(
    "register",
    [
        lambda T, f: typeof_impl(T)(f),
        lambda T, f: register_model(T)(models.OpaqueModel),
        lambda T, f: lower_cast(T, types.Float)(f),
        lambda T, f: lower_builtin(len, T)(f),
        lambda T, f: lower_getattr(T, "x")(f),
        lambda T, f: overload(len)(f),
        lambda T, f: overload_method(T, "m")(f),
    ],
    ids=["typeof", "model", "cast", "builtin", "getattr", "overload", "method"],
)
def test_every_kind_refuses_a_second_time(register):
    class T(types.Type):
        pass

    def f(x): ...

    register(T, f)
    with pytest.raises(DuplicateError, match=r"registered twice: at .*test_ext_registry.py:"):
        register(T, f)


def test_an_attribute_wrapper_is_registered_once():
    class T(types.Type):
        pass

    @register_model(T)
    class M(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("a", types.float64)])

    make_attribute_wrapper(T, "a", "a")
    with pytest.raises(DuplicateError, match=r"T\.a is registered twice: at .*test_ext_registry"):
        make_attribute_wrapper(T, "a", "a")


def test_two_overloads_of_one_function_are_fine():
    @overload(len)
    def a(x): ...

    @overload(len)
    def b(x): ...


def test_an_overload_executed_again_is_the_same_one():
    source = "def f(x):\n    return None\n"
    one, two = {}, {}
    exec(compile(source, "ext.py", "exec"), one)
    exec(compile(source, "ext.py", "exec"), two)
    overload(len)(one["f"])
    with pytest.raises(DuplicateError, match=r"ext\.py:1 and at ext\.py:1"):
        overload(len)(two["f"])


def test_what_looks_alike_and_differs_is_not_the_same():
    def made(name, kind, value, base=object):
        class Local(base):
            size = value

            def method(self):
                return super().__repr__()

        def function(x, *, k=value): ...

        return {"class": Local, "function": function}[kind]

    for kind in ("class", "function"):
        for a, b, one in ((1, 1, True), (1, 1.0, False), (0.0, -0.0, False), ("é", "é", True)):
            found = registry._same(made("a", kind, a), made("a", kind, b))
            assert found == one, (kind, a, b)
    assert not registry._same(made("a", "class", 1), made("a", "class", 1, dict))
    table = registry.Table("thing", unique=False)
    table.add("k", made("a", "class", 1))
    table.add("k", made("a", "class", 2))
    with pytest.raises(DuplicateError):
        table.add("k", made("a", "class", 1))


def test_a_transaction_that_fails_leaves_nothing():
    def f(x): ...

    before = version()

    def register_and_fail():
        with transaction():
            overload(sorted)(f)
            assert version() != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        register_and_fail()
    with pytest.raises(TypingError, match="nothing is registered"):
        resolve_call(sorted, [types.int64], {})


def test_a_transaction_that_succeeds_keeps_all():
    def f(x):
        return lambda x: x

    with transaction():
        overload(sorted)(f)
    assert resolve_call(sorted, [types.int64], {}).entry.thing is f


def test_temporary_takes_everything_back():
    class V: ...

    with temporary():
        typeof_impl(V)(lambda val, c: types.int64)
        assert typeof(V()) == types.int64
    with pytest.raises(TypingError):
        typeof(V())


EXTENSION = """
from pytorch_bridge.extending import overload, typeof_impl, types

class Thing:
    pass

@typeof_impl(Thing)
def typeof_thing(val, c):
    return types.int64

@overload(sorted)
def sorted_thing(x):
    return lambda x: x

{end}
"""


@pytest.fixture
def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the extension's file, imported as `an_extension`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(end: str) -> None:
        (tmp_path / "an_extension.py").write_text(EXTENSION.format(end=end))
        importlib.invalidate_caches()

    yield write
    sys.modules.pop("an_extension", None)


def test_an_import_that_fails_leaves_the_registry_as_it_was(extension):
    extension(
        "from pytorch_bridge.extending import typeof\n"
        "assert typeof(Thing()) == types.int64\n"
        "raise RuntimeError('half way')"
    )
    with pytest.raises(RuntimeError, match="half way"):
        importlib.import_module("an_extension")
    with pytest.raises(TypingError, match="nothing is registered"):
        resolve_call(sorted, [types.int64], {})


def test_an_import_that_failed_can_be_tried_again(extension):
    extension("raise RuntimeError('half way')")
    with pytest.raises(RuntimeError):
        importlib.import_module("an_extension")
    extension("")
    module = importlib.import_module("an_extension")
    assert typeof(module.Thing()) == types.int64
    assert resolve_call(sorted, [types.int64], {}).entry.thing is module.sorted_thing


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: register_model(int), "class of types"),
        (lambda: register_model(types.Integer)(dict), "no class of models"),
        (lambda: typeof_impl(3), "takes a class"),
        (lambda: typeof_impl(int)(3), "decorates a function"),
        (lambda: overload([]), "no hash"),
        (lambda: overload(len)(3), "decorates a function"),
        (lambda: overload(len)(int), "decorates a function"),
        (lambda: overload_method(3, "x"), "types or classes of types, not for 3"),
        (lambda: lower_cast(int, types.Float), "types or classes of types"),
        (lambda: lower_cast(types.Float, types.Integer)(3), "decorates a function"),
        (lambda: box(types.Float)("no"), "is a function"),
    ],
)
def test_misuse_is_a_type_error_that_says_so(register, message):
    with pytest.raises(RegistrationError, match=message):
        register()
    assert issubclass(RegistrationError, TypeError)


def test_a_second_thread_waits_until_extensions_are_loaded(monkeypatch):
    """What it compiles meanwhile has their rewrites."""
    begun, first_is_in = threading.Event(), threading.Event()

    class Point:
        name, value, dist = "slow", "slow:register", None

        def load(self):
            return self.register

        def register(self):
            begun.set()
            registry.load_extensions()  # what is imported may compile something
            first_is_in.wait(0.2)  # longer than the second thread takes where nothing stops it
            loaded.append(self.name)

    loaded, found = [], []

    def second():
        begun.wait(60)
        registry.load_extensions()
        found.extend(loaded)
        first_is_in.set()

    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Point()])
    threads = [threading.Thread(target=t) for t in (registry.load_extensions, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == loaded == ["slow"]
