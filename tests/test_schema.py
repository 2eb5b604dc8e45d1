"""Row D1 and the generator: every native function is generated, named once, the same every time."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytorch_bridge.codegen import c, counterparts, coverage, generate, go
from pytorch_bridge.codegen.api import Named, docs, resolve
from pytorch_bridge.codegen.older import STAND_INS
from pytorch_bridge.schema import (
    Description,
    Docs,
    Names,
    SchemaFunction,
    Subjects,
    load_reference,
    read_installed,
)
from pytorch_bridge.schema import counterparts as counterpart_names
from pytorch_bridge.schema.docs import kind
from pytorch_bridge.schema.functions import reference_version
from pytorch_bridge.schema.names import GO_KEYWORDS
from pytorch_bridge.schema.python_api import (
    LEFT_OUT,
    NAMESPACES,
    not_public,
    python_api,
    read_installed_api,
)
from pytorch_bridge.schema.tables import read_table
from pytorch_bridge.types import schema_type

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def functions() -> list[SchemaFunction]:
    return load_reference()


@pytest.fixture(scope="module")
def ops(functions):
    return {op.function.name: op for op in resolve(functions, Names())}


def function(schema: str) -> SchemaFunction:
    return SchemaFunction(schema, ("function",))


def test_generated_files_are_what_the_schemas_ask_for():
    if not generate.reference_is_installed():
        pytest.skip("the committed files are compared with the torch they were generated from")
    assert generate.main(check=True) == 0


def test_generation_is_the_same_in_every_process(functions):
    """Whatever the order of sets and of hashes is there."""
    code = (
        "import hashlib, pathlib; from pytorch_bridge import generate; "
        "from pytorch_bridge.schema import load_reference; from pytorch_bridge.schema.functions import reference_version; "
        "made = generate.files(load_reference(), reference_version()); "
        "print(hashlib.sha256(repr(sorted((str(p), t) for p, t in made.items())).encode())"
        ".hexdigest())"
    )
    seen = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    made = sorted((str(p), t) for p, t in generate.files(functions, reference_version()).items())
    seen.add(hashlib.sha256(repr(made).encode()).hexdigest() + "\n")
    assert len(seen) == 1


def test_d1_every_function_is_generated_or_skipped_for_a_reason(functions, ops):
    names = Names()
    assert len(functions) == len(ops) + len(names.skipped)
    assert len(names.skipped) < 10
    assert all(reason for reason in names.skipped.values())
    if generate.reference_is_installed():
        assert {f.name for f in read_installed()} == {f.name for f in functions}


def test_d1_every_public_function_is_in_go_and_every_one_in_c(functions, ops):
    header = (ROOT / "cgotorch/ops_gen.h").read_text()
    declared = set(re.findall(r"CGOTORCH_API const char \*(\w+)\(", header))
    assert declared == {op.c for op in ops.values()}
    source = "".join(p.read_text() for p in ROOT.glob("gotorch/ops_*_gen.go"))
    written = set(re.findall(r"^func (\w+)\(", source, re.MULTILINE))
    by_hand = set(Names().hand_written)
    assert {op.go for op in ops.values() if op.go} - by_hand <= written
    assert all(op.go for op in ops.values() if not op.function.private)


def test_a_function_is_in_the_file_of_its_subject():
    for name, functions in {
        "convolution": ["Conv2d", "ConvTranspose2d", "Conv2dPadding"],
        "arithmetic": ["Add", "Add_", "AddScalar", "AddOut"],
        "backends": ["MIOpenCTCLoss", "CuDNNBatchNormBackward"],
        "backward": ["ConvTBCBackward", "GLUBackwardJVP"],
    }.items():
        source = (ROOT / f"gotorch/ops_{name}_gen.go").read_text()
        assert [f for f in functions if f"\nfunc {f}(" not in source] == []


def test_no_generated_file_is_too_long_to_read():
    for path in ROOT.glob("gotorch/ops_*_gen.go"):
        assert path.read_text().count("\n") <= 5000, f"{path.name}: split its subject"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("a: {title: t, functions: add}", "mul has no subject: add its name"),
        ("a: {title: t, functions: add mul sub}", "sub decides for no function"),
        ("a: {title: t, functions: add mul m*}", "m[*] decides for no function"),
        ("{a: {title: t, functions: add mul}, b: {title: t, functions: add}}", "add belongs to a and b"),
        (
            "{a: {title: t, functions: add m*}, b: {title: t, functions: '*l'}}",
            "mul belongs to a and b, by m[*] and [*]l: write its name",
        ),
    ],
)  # fmt: skip
def test_subjects_that_are_none_or_several_are_an_error(tmp_path, table, said):
    path = tmp_path / "subjects.yaml"
    path.write_text(table)
    with pytest.raises(ValueError, match=said):
        Subjects(path).of(["add", "mul"])


def test_a_name_goes_before_a_pattern_and_a_longer_pattern_before_a_shorter_one(tmp_path):
    path = tmp_path / "subjects.yaml"
    path.write_text("{a: {title: t, functions: 'm* add'}, b: {title: t, functions: 'mu* mm a*'}}")
    found = Subjects(path).of(["add", "abs", "mul", "mm", "max"])
    assert {f: s.name for f, s in found.items()} == {
        "add": "a", "abs": "b", "mul": "b", "mm": "b", "max": "a"
    }  # fmt: skip


def test_d2_methods_where_the_schema_says_so(ops):
    assert ops["mm"].method
    assert not ops["cat"].method
    source = (ROOT / "gotorch/ops_products_gen.go").read_text()
    assert "func MM(self, mat2 Tensor) Tensor {" in source
    assert "func (self Tensor) MM(mat2 Tensor) Tensor {" in source


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("mm", "MM"),
        ("add.Tensor", "Add"),
        ("add.Scalar", "AddScalar"),
        ("add_.Tensor", "Add_"),
        ("add.out", "AddOut"),
        ("sum.dim_IntList", "SumDim"),
        ("max.dim", "MaxDim"),
        ("topk", "TopK"),
        ("relu", "ReLU"),
        ("nll_loss", "NLLLoss"),
        ("eq.Tensor_out", "EqOut"),
        ("pow.Tensor_Scalar", "Pow"),
        ("__and__.Tensor", "And"),
    ],
)
def test_names(ops, schema, name):
    assert ops[schema].c == name
    assert ops[schema].go == name


def test_private_functions_are_in_c_only(ops):
    assert ops["_softmax"].c == "_Softmax"
    assert ops["_softmax"].go is None
    assert ops["_foreach_add.Scalar"].go == "ForeachAddScalar"


def test_the_default_overload_is_named_in_the_table_never_counted():
    names = Names()
    only_one = function("shiny_new.Tensor(Tensor self) -> Tensor")
    assert names.c(only_one) == "ShinyNewTensor"


def test_two_functions_with_one_name_are_an_error():
    clash = [function("a_b(Tensor self) -> Tensor"), function("a.b(Tensor self) -> Tensor")]
    with pytest.raises(ValueError, match=r"a_b and a\.b are both AB"):
        resolve(clash, Names())


def test_an_unknown_schema_type_is_an_error():
    with pytest.raises(LookupError, match="Widget"):
        schema_type("Widget")


def test_every_default_can_be_left_out_and_every_argument_set(ops):
    for op in ops.values():
        fields = [p.field for p in op.optional]
        assert len(set(fields)) == len(fields), op.function.schema
        arguments = op.function.arguments
        assert [p.argument.name for p in op.parameters] == [a.name for a in arguments]
        defaults = {a.name for a in arguments if a.default is not None}
        assert {p.argument.name for p in op.optional} == defaults, op.function.schema


def test_every_go_function_has_a_description_of_its_own(ops):
    assert [op.function.name for op in ops.values() if op.go and not op.description] == []
    known = set(ops)
    for op in ops.values():
        known |= {op.function.family, op.function.base}
    assert [name for name in docs().texts if name not in known] == []
    assert list(docs().texts) == sorted(docs().texts)
    arguments = {a.name for op in ops.values() for a in op.function.arguments}
    assert [name for name in docs().sentences if name not in arguments] == []


def said(op, known) -> str:
    """The prose of an op's comment: all that is not the schema, a link or another function."""
    lines = [line[2:] for line in go.doc(op, known)]
    prose = " ".join(line for line in lines if not line.startswith("\t") and "See http" not in line)
    return re.sub(r"\[[A-Za-z0-9_]+\]", "", prose.removeprefix(f" {op.go}"))


# Words of English that are names of parameters, too, where another overload has those.
ENGLISH = set(
    re.findall(
        r"\w+",
        "X alpha beta data device dtype element elements from index indices input layout max mean min n out p "
        "periodic r scalar scalars scale size sizes source start stride tau tensor tensors to values weight weights x",
    )
)


def names_of(op) -> set[str]:
    return {n for p in op.parameters for n in (p.argument.name, p.go, p.go_doc)}


def test_comments_name_only_parameters_that_the_function_has(ops):
    known = Named(list(ops.values()))
    families: dict[str, list] = {}
    for op in ops.values():
        if op.go:
            families.setdefault(op.function.family, []).append(op)
    wrong = []
    for family in families.values():
        names = {n for op in family for n in names_of(op)} - ENGLISH
        for op in family:
            words = set(re.findall(r"\w+", said(op, known)))
            results = {r.ret.name for r in op.results}
            if absent := words & names - names_of(op) - results:
                wrong.append((op.go, absent))
            # A name of more than one word stands there as Go has it.
            if snake := {w for w in words if "_" in w and w in names}:
                wrong.append((op.go, snake))
    assert wrong == []


def test_overloads_that_take_other_things_say_other_things(ops):
    known = Named(list(ops.values()))
    texts: dict[tuple[str, str], list] = {}
    for op in ops.values():
        if op.go:
            texts.setdefault((op.function.family, said(op, known)), []).append(op)
    wrong = []
    for alike in texts.values():
        kinds = {tuple((p.argument.name, kind(p.argument)) for p in op.required) for op in alike}
        if len(kinds) > 1:
            wrong.append([op.go for op in alike])
    assert wrong == []


def test_other_functions_in_descriptions_exist(ops):
    known = Named(list(ops.values()))
    for text in docs().texts.values():
        for name in re.findall(r"@([\w.]+\w)", text):
            assert known.seen_from(ops["mm"], name), f"@{name} in {text!r}"


def read(schema: str, text: str) -> str:
    f = function(schema)
    return Description(f, text).read({a.name: a.name.upper() for a in f.arguments}, str.title)


def test_descriptions_are_read_for_an_overload():
    one, two = "f(Tensor self) -> Tensor", "f.dim(Tensor self, int[1]? dim) -> Tensor"
    text = "sums {self}{dim: along {dim=int[]:the dimensions }{dim}}{no dim: whole}, as @g.h does"
    assert read(one, text) == "sums SELF whole, as G.H does."
    assert read(two, text) == "sums SELF along the dimensions DIM, as G.H does."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("along {dim}", "there is no parameter dim"),
        ("{self: along {dim}}", "there is no parameter dim"),
        ("{self: along", "not closed"),
        ("{self} along}", "closes nothing"),
    ],
)
def test_a_description_that_promises_what_is_not_there_is_an_error(text, said):
    with pytest.raises(ValueError, match=said):
        read("f(Tensor self) -> Tensor", text)


def test_kinds_that_set_overloads_apart_are_named_where_the_text_does_not():
    functions = [
        function("f(Tensor self, Tensor other) -> Tensor"),
        function("f.Scalar(Tensor self, Scalar other) -> Tensor"),
        function("f_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)"),
    ]
    table = Docs()
    table.texts, table.sentences = {"f": "adds"}, {}
    found = table.of(functions)

    def text(name: str) -> str:
        return found[name].read({"self": "self", "other": "other"}, str)

    assert [text(n) for n in ("f", "f.Scalar", "f_.Scalar")] == [
        "adds.",
        "adds. other is a number.",
        "adds. other is a number.",
    ]
    table.texts = {"f": "adds", "f.Scalar": "adds {other=Scalar:the number }{other}"}
    found = table.of(functions)
    assert text("f_.Scalar") == "adds the number other."


def test_parameters_are_named_as_go_names_them(ops):
    for op in ops.values():
        if op.go:
            names = [p.go for p in op.required]
            assert not [n for n in names if "_" in n or n in GO_KEYWORDS or n[0].isupper()], op.go
            assert len(set(names)) == len(names)
    assert [p.go for p in ops["linalg_lu_solve"].required] == ["lu", "pivots", "b"]
    assert [p.go for p in ops["native_group_norm"].parameters][3:6] == ["n", "c", "hxW"]


def test_documentation_pages_exist():
    """The pages named in the schemas file are names that PyTorch documents."""
    for f in load_reference()[::37]:
        if not f.page:
            continue
        thing = torch
        for part in f.page.split(".")[1:]:
            thing = getattr(thing, part)
        assert thing.__doc__


def test_results_that_are_arguments(ops):
    assert ops["add_.Tensor"].results[0].same.argument.name == "self"
    assert [r.same.argument.name for r in ops["max.dim_max"].results] == ["max", "max_values"]
    assert ops["mm"].results[0].same is None


def test_views_are_documented(ops):
    assert "shares storage with self" in "".join(go.doc(ops["transpose.int"], Named([])))


# An older torch, told from the reference by its schemas.

NEW = "f(Tensor self, *, int k=3, Scalar alpha=1) -> Tensor"


def adapted(reference: str, installed: str | None) -> str:
    (op,) = resolve([function(reference)], Names())
    code = c.function(op, function(installed) if installed else None, "9.9.0")
    return " ".join(code.split())


def test_a_function_that_torch_lacks_says_which_version_has_it():
    assert 'return needs_torch("f", "9.9.0");' in adapted(NEW, None)


def test_a_function_with_a_stand_in_is_computed_by_that():
    schema = "storage_offset(Tensor self) -> int"
    assert '*result = in(self, "self").storage_offset();' in adapted(schema, None)
    assert "at::_ops::storage_offset::call" in adapted(schema, schema)


def test_stand_ins_are_for_functions_that_there_are(ops):
    assert not STAND_INS.keys() - ops.keys()
    names = re.compile(r"\{(\w+)\}")
    for name, text in STAND_INS.items():
        arguments = {p.argument.name for p in ops[name].parameters}
        assert set(names.findall(text)) == arguments, name


def test_an_argument_that_torch_lacks_is_dropped_when_default_and_refused_when_not():
    code = adapted(NEW, "f(Tensor self, *, int k=3) -> Tensor")
    assert 'at::_ops::f::call(in(self, "self"), k)' in code
    assert (
        'if (!((scalar(alpha).to<double>() == 1))) return argument_needs_torch("f", "alpha"' in code
    )


def test_a_required_argument_that_torch_lacks_refuses_the_call():
    code = adapted("f(Tensor self, int k) -> Tensor", "f(Tensor self) -> Tensor")
    assert 'return needs_torch("f", "9.9.0");' in code
    assert "call(" not in code


def test_an_argument_that_torch_has_besides_gets_its_default():
    code = adapted("f(Tensor self) -> Tensor", "f(Tensor self, int[2] p=1, float q=0.5) -> Tensor")
    assert 'call(in(self, "self"), c10::ArrayRef<int64_t>({1, 1}), 0.5)' in code


def test_an_int_that_became_symbolic_is_the_same_to_c():
    code = adapted("f(Tensor self, SymInt k) -> Tensor", "f(Tensor self, int k) -> Tensor")
    assert 'call(in(self, "self"), k)' in code


def test_another_result_type_refuses_the_call():
    assert "needs_torch" in adapted("f(Tensor self) -> Tensor", "f(Tensor self) -> Tensor[]")


def test_coverage_counts_add_up(functions):
    text = coverage.document(functions, Names(), reference_version())
    assert f"| **all** | {len(functions)} | {len(functions)} |" in text
    assert (ROOT / "docs/coverage.md").read_text() == text


def test_names_that_a_program_adds_to_torch_are_not_pytorchs(monkeypatch):
    before = read_installed_api()
    monkeypatch.setattr(torch.Tensor, "is_of_ours", True, raising=False)
    assert read_installed_api() == before
    assert "is_of_ours" not in before


def test_every_name_of_pytorch_is_in_go_or_has_its_reason(functions):
    """Raises for a name that is neither; the page is what the table says today."""
    text = counterparts.page(resolve(functions, Names()))
    assert (ROOT / "docs/pytorch-names.md").read_text() == text, (
        "run: python -m pytorch_bridge coverage"
    )
    assert text.count("| `torch") == len(python_api())


def test_no_name_of_a_module_is_left_out_without_a_reason():
    """A name that is not public is private, another module's, a plain value, or in the table."""
    used = set()
    for namespace in NAMESPACES:
        if namespace == "torch.Tensor":
            continue
        module = importlib.import_module(namespace)
        for name in set(dir(module)) - {"is_of_ours"}:
            reason = not_public(module, name)
            for pattern in LEFT_OUT.get(namespace, ()):
                if re.fullmatch(pattern, name):
                    used.add((namespace, pattern))
            if reason.startswith("from "):
                home = reason.removeprefix("from ")
                assert not home.startswith(
                    (namespace, f"{namespace.replace('torch', 'torch._C')}.")
                )
                assert name not in getattr(module, "__all__", ())
            assert bool(reason) != (f"{namespace}.{name}" in python_api()), (
                namespace,
                name,
                reason,
            )
    assert used == {(n, p) for n, patterns in LEFT_OUT.items() for p in patterns}


def test_every_function_that_subclasses_can_override_is_public():
    """PyTorch has a list of its functions, for those who write subclasses of tensors."""
    checked = 0
    for space, functions_of in torch.overrides.get_overridable_functions().items():
        name = getattr(space, "__name__", "")
        namespace = {"Tensor": "torch.Tensor", "torch.functional": "torch"}.get(name, name)
        if namespace not in NAMESPACES:
            continue
        for f in functions_of:
            public = getattr(f, "__name__", "_")
            if public.startswith("_") or getattr(space, public, None) is not f:
                continue
            why = "" if namespace == "torch.Tensor" else not_public(space, public)
            assert f"{namespace}.{public}" in python_api() or why.startswith("from "), public
            checked += 1
    assert checked > 1000


def test_a_field_is_no_counterpart(functions):
    """Tensor.T is the handle in Go; x.T is a method."""
    assert "gotorch.Tensor.T" not in counterpart_names.exported()
    assert "nn.Modular.Eval" in counterpart_names.exported()
    found = counterpart_names.counterparts(counterparts.native(resolve(functions, Names())))
    (row,) = (c for c in found["torch.Tensor"] if c.python.name == "T")
    assert row.go == ("gotorch.Tensor.Transpose2D",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["torch.nn"]["none"].pop("Container"), "torch.nn.Container is neither"),
        (lambda t: t["torch.nn"]["none"].update(Linear2="a reason"), "Linear2 is about no name"),
        (lambda t: t["torch.nn"]["go"].update(Linear="nn.Linea"), "Go has no nn.Linea"),
        (lambda t: t["torch.nn"]["none"].update({"Lin.*r": "a reason"}), "lacks it: nn.Linear"),
        (lambda t: t.pop("torch.fft"), "torch.fft is no namespace"),
    ],
)
def test_a_table_of_names_that_does_not_fit_is_refused(functions, change, message):
    table = read_table(counterpart_names.FILE)
    change(table)
    native = counterparts.native(resolve(functions, Names()))
    with pytest.raises(counterpart_names.CounterpartError, match=message):
        counterpart_names.counterparts(native, table)


def test_coverage_refuses_counts_that_do_not_add_up(functions):
    names = Names()
    names.skipped = {"no.such": "a reason"}
    with pytest.raises(ValueError, match="3110 functions"):
        coverage.document(functions, names, "2.15.0")


def test_the_hash_changes_with_the_interface(functions):
    ops = resolve(functions, Names())
    changed = [replace(ops[0], index=ops[0].index + 1), *ops[1:]]
    assert generate.api_hash(ops) != generate.api_hash(changed)


@pytest.mark.parametrize(
    "other",
    [
        "f(Tensor self, int k, *, float p) -> Tensor",  # the order of fields
        "f(Tensor self, float p, bool k) -> Tensor",  # a type
        "f(Tensor self, float p) -> Tensor",
        "f(Tensor self, float p, int k) -> (Tensor, Tensor)",
        "f(Tensor(a!) self, float p, int k) -> Tensor(a!)",
    ],
)
def test_the_hash_changes_with_a_blocks_layout(other):
    def hashed(schema: str) -> str:
        op = resolve([function(schema)], Names())[0]
        return generate.api_hash([replace(op, c="F", index=0)])

    assert hashed("f(Tensor self, float p, int k) -> Tensor") != hashed(other)


def test_the_hash_changes_with_how_a_field_is_read(functions, monkeypatch):
    ops = resolve(functions, Names())[:5]
    before = generate.api_hash(ops)
    thunk = generate.c.thunk
    monkeypatch.setattr(
        generate.c, "thunk", lambda op: thunk(op).replace("void *scope;", "int scope;")
    )
    assert generate.api_hash(ops) != before


@pytest.mark.parametrize(
    ("header", "old", "new", "changes"),
    [
        ("tensor.h", "int64_t ndim;\n  int64_t numel;", "int64_t numel;\n  int64_t ndim;", True),
        ("cgotorch.h", "  int32_t index;\n} Device;", "  int64_t index;\n} Device;", True),
        ("thunk.h", "struct OutTensor {", "struct OutTensor { int64_t more;", True),
        ("allocator.h", "int64_t live;", "int32_t live;", True),
        ("index.h", "IndexSlice,", "IndexNone, IndexSlice,", True),
        ("tensor.h", "/* Fills *info.", "/* It fills *info.", False),
        ("internal.h", "struct Failure {", "struct Failure { int more;", False),
    ],
)
def test_the_hash_covers_the_headers_by_hand(tmp_path, monkeypatch, header, old, new, changes):
    before = generate.api_hash([])
    for path in generate.HEADERS.glob("*.h"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / header).read_text()
    assert text.count(old) == 1
    (tmp_path / header).write_text(text.replace(old, new))
    monkeypatch.setattr(generate, "HEADERS", tmp_path)
    assert (generate.api_hash([]) != before) == changes
