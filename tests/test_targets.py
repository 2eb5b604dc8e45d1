"""A target language is a module that says what each type is there; nothing else has to change. Here
it is Rust: the declarations of the C functions."""

from __future__ import annotations

import pytest

from pytorch_bridge.codegen.api import Wrapped, resolve
from pytorch_bridge.errors import MissingMethodError
from pytorch_bridge.schema import Names, SchemaFunction, load_reference
from pytorch_bridge.types import schema_type
from pytorch_bridge.types.containers import BoolArray, ListArg, Optional
from pytorch_bridge.types.numbers import NumberArg
from pytorch_bridge.types.objects import String
from pytorch_bridge.types.schema_types import SchemaType
from pytorch_bridge.types.type_rules import Face

rust: Face[str] = Face("Rust type", __name__)
rust.of(SchemaType)(lambda t: t.c)  # the structs and handles of cgotorch.h
rust.of(NumberArg)(lambda t: {"int": "i64", "float": "f64", "bool": "bool"}[t.kind])
rust.of(String)(lambda t: "*const c_char")
rust.of(BoolArray)(lambda t: f"*const [bool; {t.size}]")
rust.of(ListArg)(lambda t: f"*const {rust(t.elem)}")
rust.of(Optional)(lambda t: rust(t.elem) if t.elem.nullable else f"*const {rust(t.elem)}")


def declaration(op: Wrapped) -> str:
    names = [(f"{p.c}_" if p.c in ("self", "type") else p.c, p.type) for p in op.parameters]
    given = [f"{n}: {rust(t)}" + f", {n}_len: i64" * rust_list(t) for n, t in names]
    for r in op.results:
        t = rust(r.type).replace("*const", "*mut")
        given.append(f"{r.c}: *mut {t}" + f", {r.c}_len: *mut i64" * rust_list(r.type))
    return f"pub fn cgotorch_{op.c}({', '.join(given)}) -> *const c_char;"


def rust_list(t: SchemaType) -> bool:
    return isinstance(t.required, ListArg)


def test_declarations_for_rust():
    schemas = [
        "mm(Tensor self, Tensor mat2) -> Tensor",
        "mixed(Tensor[] xs, SymInt[]? sizes, Scalar? alpha=None, *, bool? keep=None) -> Tensor[]",
    ]
    ops = resolve([SchemaFunction(s, ("function",)) for s in schemas], Names())
    assert [declaration(op) for op in ops] == [
        "pub fn cgotorch_Mixed(xs: *const Tensor, xs_len: i64, sizes: *const i64, sizes_len: i64, "
        "alpha: *const Scalar, keep: *const bool, "
        "result: *mut *mut Tensor, result_len: *mut i64) -> *const c_char;",
        "pub fn cgotorch_MM(self_: Tensor, mat2: Tensor, result: *mut Tensor) -> *const c_char;",
    ]


def test_every_function_has_a_declaration():
    assert all(map(declaration, resolve(load_reference(), Names())))


def test_a_type_without_a_rule_is_told_where_it_belongs():
    face: Face[str] = Face("Nim type", "targets/nim.py")
    face.of(NumberArg)(lambda t: t.kind)
    face.of(ListArg)(lambda t: f"seq[{face(t.elem)}]")
    assert face(schema_type("int[]")) == "seq[int]"
    text = r"no Nim type for the type int\?: targets/nim.py needs a rule .of\(Optional, NumberArg\)"
    with pytest.raises(MissingMethodError, match=text):
        face(schema_type("int?"))
