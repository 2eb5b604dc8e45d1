"""Loops: a node with graphs in it that a call computes again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import ops
from ..autodiff.grad import differentiable, vector_jacobian
from ..errors import BridgeValueError, MissingMethodError
from ..graph.basic import Apply, Variable
from ..ops.native import native
from ..ops.op import Names, Storages, Values, closed
from ..types import TensorType, Type
from ..types.base import Sub
from .branches import Branch, Branching, called, is_tensor
from .model import substituted

_NOTHING = (
    "map over a tensor whose first size is 0: nothing says what it returns; call it with at least "
    "one element"
)

# Of a scan.
_ELEMENTS = """\
static const char *pb_sizes(Tensor t, int64_t from, int64_t *sizes, int64_t *count) {
  int64_t ndim = 0;
  const char *error = NDim(t, &ndim);
  if (!error && ndim > 64) {
    error = cgotorch_make_error("ValueError", "a tensor of a scan has more than 64 dimensions");
  }
  for (int64_t d = from; !error && d < ndim; d++) error = SizeOf(t, d, &sizes[d - from]);
  *count = ndim - from;
  return error;
}

/* Element `turn` of `length` along the first dimension: the first is a copy, and where there is
 * none, zeros stand for it. */
static inline const char *pb_element(Tensor t, int64_t length, int64_t turn, Tensor *element) {
  if (turn) return Select(t, 0, turn, element);
  if (length) return SelectCopy(t, 0, 0, element);
  int64_t sizes[64], count = 0;
  const char *error = pb_sizes(t, 1, sizes, &count);
  return error ? error : NewZeros(t, sizes, count, NULL, NULL, NULL, NULL, element);
}

/* Puts what a turn gave into its place among all, which the first turn makes. */
static const char *pb_keep(Tensor *all, Tensor part, int64_t length, int64_t turn) {
  int64_t sizes[65], count = 0, size = 0;
  Tensor place = NULL, written = NULL;
  sizes[0] = length;
  const char *error = pb_sizes(part, 0, sizes + 1, &count);
  if (!turn && !error) {
    error = NewEmpty(part, sizes, count + 1, NULL, NULL, NULL, NULL, all);
  }
  for (int64_t d = 1; turn && !error && d <= count; d++) {
    error = SizeOf(*all, d, &size);
    if (!error && size != sizes[d]) {
      error = cgotorch_make_error("ValueError", "the turns of a scan return tensors of one size");
    }
  }
  if (!error && turn < length) error = Select(*all, 0, turn, &place);
  if (!error && turn < length) error = Copy_(place, part, false, &written);
  FreeTensor(place);
  FreeTensor(written);
  return error;
}

/* Tensor k of `count` at each of `turns`, along a new first dimension. There is one more. */
static inline const char *pb_stacked(const Tensor *kept, int64_t k, int64_t count, int64_t turns,
                                     Tensor *all) {
  const char *error = NULL;
  if (!turns) return pb_keep(all, kept[k], 0, 0);
  for (int64_t turn = 0; !error && turn < turns; turn++) {
    error = pb_keep(all, kept[turn * count + k], turns, turn);
  }
  return error;
}"""


class Loop(Branching):
    """A loop over what is in it. Its first outputs are what is carried from turn to turn, the first
    `carries` of its inputs in the beginning."""

    carries: int

    def shares(self, inputs: Sequence[Any], *counts: int) -> list[list[Any]]:
        """A node's operands, so many in each list; the last list has the rest."""
        rest, found = self.operands(inputs), []
        for n in counts:
            found.append(rest[:n])
            rest = rest[n:]
        return [*found, rest]

    def _check_gradient(self) -> None:
        if self.random:
            raise MissingMethodError(f"{self} has no gradient where it draws random numbers")

    def _all_gradients(
        self, node: Apply, need: Sequence[bool], found: Mapping[int, Variable]
    ) -> list[Variable | None]:
        """Gradients of inputs, by their numbers, for each input."""
        return [found.get(i) if need[i] else None for i in range(len(node.inputs))]


@closed
class While(Loop):
    """Its first inputs, which are carried, as the second branch makes them anew as long as the
    first one returns true. Both take what is carried, then the other inputs."""

    def __init__(self, test: Branch, body: Branch, types: Sequence[Type]) -> None:
        super().__init__([test, body], types)
        self.carries = len(types)

    def __str__(self) -> str:
        return "while_loop"

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        carried, others = self.shares(inputs, self.carries)
        test, body = (b.compiled for b in self.branches)
        of_test, of_body = (self.constants(k, inputs) for k in (0, 1))
        turned = False
        while test(*carried, *others, *of_test)[0]:
            carried = body(*carried, *others, *of_body)
            turned = True
        for storage, t, value in zip(output_storage, self.types, carried, strict=True):
            storage[0] = value.clone() if is_tensor(t) and not turned else value

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        carried, others = self.shares(inputs, self.carries)
        now, new = _named("now", carried), _named("new", carried)
        tensor = [is_tensor(t) for t in self.types]
        given = [[*now, *others, *self.constants(k, inputs)] for k in (0, 1)]
        test = called(functions[0], [*given[0], "&pb_goes_on"])
        body = called(functions[1], [*given[1], *_addresses(new)])
        begin = [f"RetainTensor({v})" if t else v for t, v in zip(tensor, carried, strict=True)]
        free = [f"FreeTensor({n});" for t, n in zip(tensor, now, strict=True) if t]
        copies = [
            f"if (!pb_error) pb_error = Clone({a}, NULL, &{b});\nFreeTensor({a});\n{a} = {b};"
            for t, a, b in zip(tensor, now, new, strict=True)
            if t
        ]
        kinds = [*self.types, *self.types]
        return "\n".join(
            [
                *(t.c_declare(n, sub) for t, n in zip(kinds, [*now, *new], strict=True)),  # type: ignore[attr-defined]
                *_assigned(now, begin),
                *(f"{n} = {'NULL' if t else '0'};" for t, n in zip(tensor, new, strict=True)),
                "bool pb_goes_on = false, pb_turned = false;",
                "for (;;) {",
                f"pb_error = {test};",
                "if (pb_error || !pb_goes_on) break;",
                f"pb_error = {body};",
                "if (pb_error) break;",
                *free,
                *_assigned(now, new),
                *(f"{n} = NULL;" for t, n in zip(tensor, new, strict=True) if t),
                "pb_turned = true;",
                "}",
                # No result shares memory with what is given.
                *(["if (!pb_turned) {", *copies, "}"] if copies else ["(void)pb_turned;"]),
                *_ended(free, sub),
                *_assigned(outputs, now),
            ]
        )

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """The loop is computed again, with what is carried kept at each turn; from the last turn to
        the first goes a scan."""
        self._check_gradient()
        if not all(map(is_tensor, self.types)):
            raise MissingMethodError(
                f"{self} has no gradient where it carries a number: carry a tensor without "
                "dimensions instead"
            )
        _, others = self.shares(node.inputs, self.carries)
        test, body = self.branches
        kept = Kept(test, body, self.types).make_node(*self.operands(node.inputs)).outputs
        grads = [
            native("zeros_like")(v) if g is None else g
            for v, g in zip(node.outputs, output_grads, strict=True)
        ]
        back = _Back(body, self.carries, 0, others, need[self.carries :])
        found = back.scan(grads, kept, [], [])
        return self._all_gradients(node, need, found)


@closed
class Kept(Loop):
    """What is carried at the beginning of each turn of a while loop, along a new first
    dimension."""

    def __init__(self, test: Branch, body: Branch, types: Sequence[Type]) -> None:
        super().__init__([test, body], [_sequence(t) for t in types])
        self.carries = len(types)

    def __str__(self) -> str:
        return "turns of while_loop"

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        import torch

        carried, others = self.shares(inputs, self.carries)
        test, body = (b.compiled for b in self.branches)
        of_test, of_body = (self.constants(k, inputs) for k in (0, 1))
        kept: list[list[Any]] = [[] for _ in carried]
        empty = [v.new_empty([0, *v.shape]) for v in carried]
        while test(*carried, *others, *of_test)[0]:
            for values, v in zip(kept, carried, strict=True):
                values.append(v)
            carried = body(*carried, *others, *of_body)
        for storage, values, none in zip(output_storage, kept, empty, strict=True):
            storage[0] = torch.stack(values).contiguous() if values else none

    def c_headers(self) -> Sequence[str]:
        return [*super().c_headers(), "stdlib.h"]

    def c_support_code(self) -> str:
        return _ELEMENTS

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        carried, others = self.shares(inputs, self.carries)
        count = len(carried)
        now = [f"pb_kept[pb_turns * {count} + {k}]" for k in range(count)]
        new = [f"pb_kept[(pb_turns + 1) * {count} + {k}]" for k in range(count)]
        given = [[*now, *others, *self.constants(k, inputs)] for k in (0, 1)]
        test = called(functions[0], [*given[0], "&pb_goes_on"])
        body = called(functions[1], [*given[1], *_addresses(new)])
        memory = 'cgotorch_make_error("MemoryError", "there is no memory for the turns of a loop")'
        grown = f"(size_t)(2 * pb_room * {count}) * sizeof(Tensor)"
        return "\n".join(
            [
                "bool pb_goes_on = false;",
                "int64_t pb_turns = 0, pb_room = 16;",
                f"Tensor *pb_kept = (Tensor *)calloc(16 * {count}, sizeof(Tensor));",
                "Tensor *pb_more = NULL;",
                f"if (!pb_kept) pb_error = {memory};",
                *(
                    f"if (!pb_error) pb_kept[{k}] = RetainTensor({v});"
                    for k, v in enumerate(carried)
                ),
                "while (!pb_error) {",
                f"pb_error = {test};",
                "if (pb_error || !pb_goes_on) break;",
                "if (pb_turns + 2 > pb_room) {",
                f"pb_more = (Tensor *)realloc(pb_kept, {grown});",
                "if (!pb_more) {",
                f"pb_error = {memory};",
                "break;",
                "}",
                "pb_kept = pb_more;",
                f"for (int64_t i = pb_room * {count}; i < 2 * pb_room * {count}; i++) {{",
                "pb_kept[i] = NULL;",
                "}",
                "pb_room *= 2;",
                "}",
                f"pb_error = {body};",
                "if (!pb_error) pb_turns++;",
                "}",
                *(
                    f"if (!pb_error) pb_error = pb_stacked(pb_kept, {k}, {count}, pb_turns, &{o});"
                    for k, o in enumerate(outputs)
                ),
                f"for (int64_t i = 0; pb_kept && i < pb_room * {count}; i++) {{",
                "FreeTensor(pb_kept[i]);",
                "}",
                "free(pb_kept);",
                *_ended([], sub),
            ]
        )


@closed
class Scan(Loop):
    """What is carried, as the branch makes it anew at each element of the sequences, and what else
    it returns at each, along a new first dimension. The branch takes what is carried, an element of
    each sequence, and the other inputs.

    Where the sequences have no elements, the branch is computed once, with zeros for them, for the
    sizes of what it returns.
    """

    def __init__(self, body: Branch, types: Sequence[Type], carries: int, sequences: int) -> None:
        super().__init__([body], types)
        self.carries, self.sequences = carries, sequences

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        import torch

        begin, sequences, others = self.shares(inputs, self.carries, self.sequences)
        body, constants = self.branches[0].compiled, self.constants(0, inputs)
        length = len(sequences[0])
        carried: list[Any] = begin
        kept: list[Any] = []
        for turn in range(max(length, 1)):
            if turn:
                elements = [x.select(0, turn) for x in sequences]
            elif length:
                elements = [torch.select_copy(x, 0, 0) for x in sequences]
            else:
                elements = [x.new_zeros(x.shape[1:]) for x in sequences]
            results = body(*carried, *elements, *others, *constants)
            parts = results[self.carries :]
            if not turn:
                kept = [p.new_empty([length, *p.shape]) for p in parts]
            if length:
                carried = results[: self.carries]
            for whole, part in zip(kept, parts, strict=True):
                if whole.shape[1:] != part.shape:
                    raise BridgeValueError("the turns of a scan return tensors of one size")
                if length:
                    whole[turn].copy_(part)
        if not length:
            carried = [v.clone() for v in begin]
        for storage, value in zip(output_storage, [*carried, *kept], strict=True):
            storage[0] = value

    def c_support_code(self) -> str:
        return _ELEMENTS

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        begin, sequences, others = self.shares(inputs, self.carries, self.sequences)
        now, new = _named("now", begin), _named("new", begin)
        elements = _named("element", sequences)
        whole = outputs[self.carries :]
        parts = _named("part", whole)
        given = [*now, *elements, *others, *self.constants(0, inputs)]
        place = "pb_length, pb_turn"
        steps = [
            *(f"pb_element({x}, {place}, &{e})" for x, e in zip(sequences, elements, strict=True)),
            called(functions[0], [*given, *_addresses([*new, *parts])]),
            *(f"pb_keep(&{o}, {p}, {place})" for o, p in zip(whole, parts, strict=True)),
        ]
        copies = [
            f"if (!pb_error) pb_error = Clone({a}, NULL, &{b});\nFreeTensor({a});\n{a} = {b};"
            for a, b in zip(now, new, strict=True)
        ]
        return "\n".join(
            [
                *(f"Tensor {n} = RetainTensor({v});" for n, v in zip(now, begin, strict=True)),
                *(f"Tensor {n} = NULL;" for n in [*new, *elements, *parts]),
                "int64_t pb_length = 0;",
                f"pb_error = SizeOf({sequences[0]}, 0, &pb_length);",
                "for (int64_t pb_turn = 0; !pb_error && (!pb_turn || pb_turn < pb_length); "
                "pb_turn++) {",
                *(f"if (!pb_error) pb_error = {step};" for step in steps),
                *_freed([*elements, *parts]),
                "if (!pb_error && pb_length) {",
                *(f"FreeTensor({n});" for n in now),
                *_assigned(now, new),
                "} else {",
                *(f"FreeTensor({n});" for n in new),
                "}",
                *(f"{n} = NULL;" for n in new),
                "}",
                "if (!pb_length) {",
                *copies,
                "}",
                *_ended([f"FreeTensor({n});" for n in now], sub),
                *_assigned(outputs[: self.carries], now),
            ]
        )

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """The scan is computed again, with what is carried kept at each turn; from the last turn to
        the first goes another."""
        self._check_gradient()
        begin, sequences, others = self.shares(node.inputs, self.carries, self.sequences)
        body, n = self.branches[0], self.carries
        made = Branch(*_joined(body, [*body.outputs[:n], *body.inputs[:n]]))
        types = [*self.types[:n], *(_sequence(t) for t in self.types[:n])]
        again = Scan(made, types, n, self.sequences)
        kept = again.make_node(*begin, *sequences, *others).outputs[n:]
        grads = [
            native("zeros_like")(v) if g is None else g
            for v, g in zip(node.outputs[:n], output_grads[:n], strict=True)
        ]
        back = _Back(body, n, self.sequences, others, need[n:])
        found = back.scan(grads, kept, sequences, output_grads[n:])
        return self._all_gradients(node, need, found)


# Of an associative scan.
_PAIRS = """\
static const char *pb_slice(Tensor t, int64_t start, const int64_t *end, int64_t step,
                            Tensor *out) {
  return SliceDim(t, 0, &start, end, step, out);
}

/* Elements of a and b in turn; b may have one less. */
static const char *pb_interleave(Tensor a, Tensor b, Tensor *out) {
  Tensor padded = RetainTensor(b), stacked = NULL, flat = NULL, pair[2];
  int64_t more = 0, less = 0, ndim = 0, size[128] = {0};
  const char *error = SizeOf(a, 0, &more);
  if (!error) error = SizeOf(b, 0, &less);
  if (!error) error = NDim(b, &ndim);
  if (!error && ndim > 64) {
    error = cgotorch_make_error("ValueError", "a tensor of a scan has more than 64 dimensions");
  }
  const int64_t lacks = more == less + 1, end = more + less;
  if (!error && lacks) {
    size[2 * ndim - 1] = 1;
    FreeTensor(padded);
    padded = NULL;
    error = Pad(b, size, 2 * ndim, "constant", NULL, &padded);
  }
  pair[0] = a;
  pair[1] = padded;
  if (!error) error = Stack(pair, 2, 1, &stacked);
  if (!error) error = Flatten(stacked, 0, 1, &flat);
  if (!error && lacks) {
    error = pb_slice(flat, 0, &end, 1, out);
  } else if (!error) {
    *out = RetainTensor(flat);
  }
  FreeTensor(padded);
  FreeTensor(stacked);
  FreeTensor(flat);
  return error;
}

/* What an even place has: the first element of `before`, then what is in `after`. */
static const char *pb_even(Tensor before, Tensor after, Tensor *out) {
  const int64_t one = 1;
  int64_t elements = 0, size = 0;
  Tensor both[2] = {NULL, after};
  const char *error = NumelOf(after, &elements);
  if (!error) error = SizeOf(before, 0, &size);
  if (!error && elements > 0 && size == 0) {
    *out = RetainTensor(after);
    return NULL;
  }
  if (!error) error = pb_slice(before, 0, &one, 1, &both[0]);
  if (!error && elements > 0) {
    error = Cat(both, 2, 0, out);
  } else if (!error) {
    *out = RetainTensor(both[0]);
  }
  FreeTensor(both[0]);
  return error;
}"""


@closed
class AssociativeScan(Loop):
    """What the branch makes of all elements up to each, which it combines in the order of torch: in
    pairs, at once, in tensors of as many elements as there are pairs. It takes two such tensors for
    each sequence, and the other inputs. `step` is the same for single elements."""

    carries = 0

    def __init__(self, pairs: Branch, step: Branch, types: Sequence[Type]) -> None:
        super().__init__([pairs], types)
        self.step = step

    def __str__(self) -> str:
        return "associative_scan"

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        from torch._higher_order_ops.associative_scan import generic_associative_scan

        sequences, others = self.shares(inputs, len(self.types))
        further = (*others, *self.constants(0, inputs))
        found = generic_associative_scan(self.branches[0].compiled, sequences, 0, further)
        for storage, given, value in zip(output_storage, sequences, found, strict=True):
            storage[0] = value.clone() if value is given else value

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """From the last element to the second goes a scan: what is made of all elements up to one
        is what the combination makes of that before it, and of the element."""
        self._check_gradient()
        count = len(self.types)
        sequences, others = self.shares(node.inputs, count)
        if any(need[count:]):
            raise MissingMethodError(
                f"{self} has gradients of what it goes over alone, as in PyTorch: give it what "
                "else its combination reads as a sequence, or use scan"
            )
        part, total = native("slice.Tensor"), native("sum.dim_IntList")
        grads = [
            native("zeros_like")(v) if g is None else g
            for v, g in zip(node.outputs, output_grads, strict=True)
        ]
        begin = [native("zeros_like")(total(part(v, 0, 0, 1, 1), [0])) for v in sequences]
        results = self.step.outputs
        twice = Branch(*_joined(self.step, [*results, *results]))
        back = _Back(twice, count, count, others, [*need[:count], *need[count:]])
        found = back.scan(
            begin,
            [part(y, 0, 0, -1, 1) for y in node.outputs],
            [part(x, 0, 1, None, 1) for x in sequences],
            [part(g, 0, 1, None, 1) for g in grads],
        )
        each: list[Variable | None] = [None] * len(node.inputs)
        for k in range(count):
            if need[k]:
                first = ops.add(part(grads[k], 0, 0, 1, 1), native("unsqueeze")(found[k], 0))
                each[k] = native("cat")([first, found[count + k]], 0)
        return each

    def c_headers(self) -> Sequence[str]:
        return [*super().c_headers(), "string.h"]

    def c_support_code(self) -> str:
        return _PAIRS

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        sequences, others = self.shares(inputs, len(self.types))
        left, right, odd, even, both, new = (
            _named(w, sequences) for w in ("left", "right", "odd", "even", "both", "new")
        )
        each = range(len(sequences))
        further = [*others, *self.constants(0, inputs)]

        def combined(to: Sequence[str]) -> str:
            return called(functions[0], [*left, *right, *further, *_addresses(to)])

        def tried(steps: Iterable[str]) -> list[str]:
            return [f"if (!pb_error) pb_error = {step};" for step in steps]

        level = [f"pb_level[pb_depth][{k}]" for k in each]
        next_level = [f"pb_level[pb_depth + 1][{k}]" for k in each]
        deep = 'cgotorch_make_error("ValueError", "the combinations of a scan do not get fewer")'
        return "\n".join(
            [
                f"Tensor pb_level[64][{len(sequences)}];",
                "memset(pb_level, 0, sizeof(pb_level));",
                *(f"Tensor {n} = NULL;" for n in [*left, *right, *odd, *even, *both, *new]),
                "const int64_t pb_last = -1;",
                "int64_t pb_length = 0;",
                "int pb_depth = 0;",
                *(f"pb_level[0][{k}] = RetainTensor({sequences[k]});" for k in each),
                "for (;;) {",
                *tried([f"SizeOf({level[0]}, 0, &pb_length)"]),
                "if (pb_error || pb_length < 2) break;",
                f"if (pb_depth == 63) pb_error = {deep};",
                *tried(f"pb_slice({level[k]}, 0, &pb_last, 2, &{left[k]})" for k in each),
                *tried(f"pb_slice({level[k]}, 1, NULL, 2, &{right[k]})" for k in each),
                *tried([combined(next_level)]),
                *_freed([*left, *right]),
                "if (pb_error) break;",
                "pb_depth++;",
                "}",
                "if (!pb_error && !pb_depth) {",  # no result shares memory with what is given
                *tried(f"Clone({level[k]}, NULL, &{odd[k]})" for k in each),
                "} else if (!pb_error) {",
                *_assigned(odd, (f"RetainTensor({v})" for v in level)),
                "}",
                "while (!pb_error && pb_depth > 0) {",
                *_freed(level),
                "pb_depth--;",
                *tried([f"SizeOf({level[0]}, 0, &pb_length)"]),
                "if (!pb_error && pb_length % 2 == 0) {",
                *tried(f"pb_slice({odd[k]}, 0, &pb_last, 1, &{left[k]})" for k in each),
                "} else {",
                *_assigned(left, (f"RetainTensor({v})" for v in odd)),
                "}",
                *tried(f"pb_slice({level[k]}, 2, NULL, 2, &{right[k]})" for k in each),
                *tried([combined(even)]),
                *tried(f"pb_even({level[k]}, {even[k]}, &{both[k]})" for k in each),
                *tried(f"pb_interleave({both[k]}, {odd[k]}, &{new[k]})" for k in each),
                *_freed([*left, *right, *even, *both, *odd]),
                *_assigned(odd, new),
                *(f"{n} = NULL;" for n in new),
                "}",
                "for (; pb_depth >= 0; pb_depth--) {",
                *_freed(level),
                "}",
                *_ended([f"FreeTensor({n});" for n in odd], sub),
                *_assigned(outputs, odd),
            ]
        )


@closed
class Map(Loop):
    """What the branch returns for each element of the sequences, along a new first dimension. It
    takes an element of each sequence, and the other inputs."""

    carries = 0

    def __init__(self, body: Branch, types: Sequence[Type], sequences: int) -> None:
        super().__init__([body], types)
        self.sequences = sequences

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        import torch

        sequences, others = self.shares(inputs, self.sequences)
        body, constants = self.branches[0].compiled, self.constants(0, inputs)
        if not len(sequences[0]):
            raise BridgeValueError(_NOTHING)
        results = [
            body(*(x.select(0, turn) for x in sequences), *others, *constants)
            for turn in range(len(sequences[0]))
        ]
        for storage, parts in zip(output_storage, zip(*results, strict=True), strict=True):
            storage[0] = torch.stack(parts)

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """A map of the gradients of each element; those of the other inputs are added up."""
        self._check_gradient()
        sequences, others = self.shares(node.inputs, self.sequences)
        body, n = self.branches[0], self.sequences
        given = [g for g in output_grads if g is not None]
        grads = [
            None if g is None else o.type.make_variable()
            for o, g in zip(body.outputs, output_grads, strict=True)
        ]
        wanted = [i for i in range(n + len(others)) if need[i]]
        xs = [body.inputs[i] for i in wanted]
        inputs = [*body.inputs[:n], *(g for g in grads if g is not None), *_own(body)[n:]]
        made = Branch(*_joined(body, _filled(body.outputs, grads, xs), inputs))
        op = Map(
            made,
            [
                _sequence(x.type) if i >= n else node.inputs[i].type
                for i, x in zip(wanted, xs, strict=True)
            ],
            n + len(given),
        )
        results = op.make_node(*sequences, *given, *others).outputs
        each: list[Variable | None] = [None] * len(node.inputs)
        for i, g in zip(wanted, results, strict=True):
            each[i] = g if i < n else native("sum.dim_IntList")(g, [0])
        return each

    def c_headers(self) -> Sequence[str]:
        return [*super().c_headers(), "stdlib.h"]

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        sequences, others = self.shares(inputs, self.sequences)
        elements = _named("element", sequences)
        given = [*elements, *others, *self.constants(0, inputs)]
        to = [f"&pb_parts[{k} * pb_length + pb_turn]" for k in range(len(outputs))]
        steps = [
            *(f"Select({x}, 0, pb_turn, &{e})" for x, e in zip(sequences, elements, strict=True)),
            called(functions[0], [*given, *to]),
        ]
        count = f"pb_length * {len(outputs)}"
        nothing = f'cgotorch_make_error("ValueError", "{_NOTHING}")'
        memory = 'cgotorch_make_error("MemoryError", "there is no memory for the results of a map")'
        return "\n".join(
            [
                *(f"Tensor {e} = NULL;" for e in elements),
                "int64_t pb_length = 0;",
                "Tensor *pb_parts = NULL;",
                f"pb_error = SizeOf({sequences[0]}, 0, &pb_length);",
                f"if (!pb_error && !pb_length) pb_error = {nothing};",
                "if (!pb_error) {",
                f"pb_parts = (Tensor *)calloc((size_t)({count}), sizeof(Tensor));",
                f"if (!pb_parts) pb_error = {memory};",
                "}",
                "for (int64_t pb_turn = 0; !pb_error && pb_turn < pb_length; pb_turn++) {",
                *(f"if (!pb_error) pb_error = {step};" for step in steps),
                *_freed(elements),
                "}",
                *(
                    "if (!pb_error) pb_error = "
                    f"Stack(pb_parts + {k} * pb_length, pb_length, 0, &{o});"
                    for k, o in enumerate(outputs)
                ),
                f"for (int64_t pb_part = 0; pb_parts && pb_part < {count}; pb_part++) {{",
                "FreeTensor(pb_parts[pb_part]);",
                "}",
                "free(pb_parts);",
                *_ended([], sub),
            ]
        )


class _Back:
    """From the last turn of a loop to the first, the gradients of what its body, which takes what
    is carried, an element of each sequence and the others, is given. `need` is of the sequences,
    then of the others."""

    def __init__(
        self,
        body: Branch,
        carries: int,
        sequences: int,
        others: Sequence[Variable],
        need: Sequence[bool],
    ) -> None:
        self.body, self.carries, self.sequences = body, carries, sequences
        self.others = others
        own = _own(body)
        self.floats = [k for k in range(carries) if differentiable(own[k])]
        self.wanted = [carries + k for k in range(sequences) if need[k]]
        behind = range(sequences, sequences + len(others))
        self.added = [carries + k for k in behind if need[k]]

    def scan(
        self,
        grads: Sequence[Variable],
        kept: Sequence[Variable],
        sequences: Sequence[Variable],
        part_grads: Sequence[Variable | None],
    ) -> dict[int, Variable]:
        """The gradients by the numbers of the body's inputs, given those of what is carried at the
        end, and of what else the turns return; `kept` is what was carried at each."""
        own, flip = _own(self.body), native("flip")
        n = self.carries
        before = n + self.sequences
        of_carried = {k: own[k].type.make_variable() for k in self.floats}
        sums = {i: own[i].type.make_variable() for i in self.added}
        given = [g for g in part_grads if g is not None]
        of_parts = [
            None if g is None else o.type.make_variable()
            for o, g in zip(self.body.outputs[n:], part_grads, strict=True)
        ]
        carried = [of_carried.get(k) for k in range(n)]
        numbers = [*self.floats, *self.added, *self.wanted]
        found = _filled(self.body.outputs, [*carried, *of_parts], [own[i] for i in numbers])
        first = len(self.floats)
        for k, i in enumerate(self.added, first):
            found[k] = ops.add(sums[i], found[k])
        inputs = [
            *of_carried.values(),
            *sums.values(),
            *own[:before],
            *(g for g in of_parts if g is not None),
            *own[before:],
        ]
        types = [own[i].type for i in (*self.floats, *self.added)]
        op = Scan(
            Branch(*_joined(self.body, found, inputs)),
            [*types, *(_sequence(own[i].type) for i in self.wanted)],
            len(types),
            before + len(given),
        )
        results = op.make_node(
            *(grads[k] for k in self.floats),
            *(native("zeros_like")(self.others[i - before]) for i in self.added),
            *(flip(v, [0]) for v in (*kept, *sequences, *given)),
            *self.others,
        ).outputs
        each = dict(zip(numbers, results, strict=True))
        each.update({i: flip(each[i], [0]) for i in self.wanted})
        return each


def _own(body: Branch) -> list[Variable]:
    """A branch's inputs without its constants."""
    return body.inputs[: len(body.inputs) - len(body.constants)]


def _joined(
    body: Branch, outputs: Sequence[Variable], inputs: Sequence[Variable] | None = None
) -> tuple[Sequence[Variable], Sequence[Variable]]:
    """Inputs and outputs of a graph that is made of that of a branch, for another one."""
    own = _own(body)
    constants = dict(zip(body.inputs[len(own) :], body.constants, strict=True))
    return own if inputs is None else inputs, substituted(outputs, constants)


def _filled(
    outputs: Sequence[Variable], grads: Sequence[Variable | None], xs: Sequence[Variable]
) -> list[Variable]:
    """The gradients of xs, zeros where there are none."""
    found = zip(xs, vector_jacobian(outputs, grads, xs), strict=True)
    return [native("zeros_like")(x) if g is None else g for x, g in found]


def _sequence(t: Type) -> TensorType:
    """The type of what has such tensors along a new first dimension."""
    assert isinstance(t, TensorType)
    return TensorType(t.dtype, (None, *(t.shape or ())), device=t.device)


def _named(what: str, values: Sequence[Any]) -> list[str]:
    """C variables, one for each value."""
    return [f"pb_{what}{k}" for k in range(len(values))]


def _addresses(names: Iterable[str]) -> list[str]:
    return [f"&{n}" for n in names]


def _assigned(to: Iterable[str], values: Iterable[str]) -> list[str]:
    return [f"{a} = {b};" for a, b in zip(to, values, strict=True)]


def _freed(names: Iterable[str]) -> list[str]:
    return [f"FreeTensor({n});\n{n} = NULL;" for n in names]


def _ended(free: Sequence[str], sub: Sub) -> list[str]:
    """Leaves the node after an error."""
    return ["if (pb_error) {", *free, sub["fail"], "}"]
