"""Separate: tensors of which none shares memory with those among them that are written into.

What a caller gives may overlap, and so may the arguments of a function that writes. Nobody knows
before there are values; so each call looks, at the storages first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeValueError
from ..graph.basic import Apply
from ..ops.op import CallsTorch, Names, Storages, Values, closed
from ..types.base import Sub


@closed
class Separate(CallsTorch):
    """Its inputs, with a copy in the place of each that is read and overlaps one that is written
    into. ValueError where two that are written into overlap, or elements of one do.

    `written` are the numbers of those that are written into, `names` what errors call the inputs.
    With `refuse`, ValueError takes the place of the copy: PyTorch would read what is written.
    """

    __props__ = ("written", "names", "refuse")
    only_calls = True

    def __init__(self, written: Sequence[int], names: Sequence[str], refuse: bool = False) -> None:
        self.written = tuple(sorted(written))
        self.names = tuple(names)
        self.refuse = refuse
        self.view_map = {i: [i] for i in range(len(self.names))}

    def __str__(self) -> str:
        return f"Separate{{written={self.written}}}"

    __repr__ = __str__

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, inputs, [v.type.make_variable() for v in inputs])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        found = separated(inputs, self.written, self.names, self.refuse)
        for cell, value in zip(output_storage, found, strict=True):
            cell[0] = value

    def trace(self, node: Apply, inputs: Values) -> list[Any]:
        return list(inputs)  # what torch.export records has no memory

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        n = len(inputs)
        texts = ", ".join('"' + _plain(text) + '"' for text in self.names)
        written = ", ".join(str(int(i in self.written)) for i in range(n))
        lines = [
            f"static const char *const {name}_names[] = {{{texts}}};",
            f"static const unsigned char {name}_written[] = {{{written}}};",
            f"const Tensor {name}_in[] = {{{', '.join(inputs)}}};",
            f"Tensor {name}_out[{n}] = {{NULL}};",
            f"if ((pb_error = pb_separate({name}_in, {name}_written, {name}_names, {n}, "
            f"{int(self.refuse)}, {name}_out))) {{\n{sub['fail']}\n}}",
        ]
        for i, out in enumerate(outputs):
            lines += [f"FreeTensor({out});", f"{out} = {name}_out[{i}];"]
        return "{\n" + "\n".join(lines) + "\n}"

    def c_support_code(self) -> Sequence[str]:
        return [_SUPPORT]

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<stdio.h>", "<stdlib.h>"]


def _plain(text: str) -> str:
    return "".join(c if " " <= c <= "~" and c not in '"\\?%' else "_" for c in text)


def _twice(a: str, b: str) -> str:
    return f"{a} and {b} are both written into, and share memory: give one of them a copy"


def _read(a: str, b: str) -> str:
    return f"{a} is written into, and shares memory with {b}: give one of them a copy"


def _within(a: str) -> str:
    return f"{a} is written into, and several of its elements are one in memory: give a copy"


def separated(
    values: Sequence[Any], written: Sequence[int], names: Sequence[str], refuse: bool = False
) -> list[Any]:
    """The values, those that are read copied where they overlap one that is written into.
    BridgeValueError where two of these overlap, or elements of one do, and with `refuse` in the
    place of a copy."""
    found = list(values)
    for i in written:
        t = values[i]
        if t is None:
            continue
        if any(s == 0 and n > 1 for s, n in zip(_strides(t), t.shape, strict=False)) and t.numel():
            raise BridgeValueError(_within(names[i]))
        for j, other in enumerate(values):
            if j in written:
                if j > i and overlap(t, other):
                    raise BridgeValueError(_twice(names[i], names[j]))
            elif overlap(t, other):
                if refuse:
                    raise BridgeValueError(_read(names[i], names[j]))
                found[j] = other.clone()
    return found


def _strides(t: Any) -> Sequence[int]:
    import torch

    return t.stride() if t.layout == torch.strided and not t.is_nested else ()


def overlap(a: Any, b: Any) -> bool:
    """Whether two tensors have an element in common; also True where that cannot be told."""
    import torch

    if a is None or b is None or not a.numel() or not b.numel():
        return False
    plain = all(t.layout == torch.strided and not t.is_nested for t in (a, b))
    if not plain:
        return a is b
    meta = a.device.type == "meta"
    if a.device != b.device or (meta and a.untyped_storage()._cdata != b.untyped_storage()._cdata):
        return False
    (first, last), (start, end) = byte_range(a), byte_range(b)
    if last <= start or end <= first:
        return False
    size, low = a.element_size(), min(first, start)
    if size != b.element_size() or (first - start) % size or meta:
        return True
    places = torch.arange((max(last, end) - low) // size)
    one = places.as_strided(a.shape, a.stride(), (first - low) // size)
    two = places.as_strided(b.shape, b.stride(), (start - low) // size)
    return bool(torch.isin(one.reshape(-1), two.reshape(-1)).any())


def byte_range(t: Any) -> tuple[int, int]:
    """The bytes between which a tensor lies, by address, because two storages may have one memory
    (arrays of NumPy that are parts of one); on meta, where there is no memory, by offset."""
    size = t.element_size()
    start = t.storage_offset() * size if t.device.type == "meta" else t.data_ptr()
    reach = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1
    return start, start + reach * size


_SUPPORT = r"""
/* The elements between the first and the last of a tensor, and one more. */
static int64_t pb_span(const TensorInfo *t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t->ndim; d++) last += (t->sizes[d] - 1) * t->strides[d];
  return last + 1;
}

/* The dimensions of a tensor with more than one element, the largest stride first; -1 where there
 * are too many. */
static int pb_dims(const TensorInfo *t, int *dims) {
  int n = 0;
  for (int64_t d = 0; d < t->ndim; d++) {
    int k;
    if (t->sizes[d] == 1) continue;
    if (n == 16) return -1;
    for (k = n++; k > 0 && t->strides[dims[k - 1]] < t->strides[d]; k--) dims[k] = dims[k - 1];
    dims[k] = (int)d;
  }
  return n;
}

/* The bytes that a tensor lies in, by address, because two storages may have one memory; where it
 * has none, by the number of its storage. */
static void pb_bytes(const TensorInfo *t, int64_t *start, int64_t *end) {
  const int64_t offset = t->storage_offset * t->itemsize;
  const int64_t storage = t->data ? (int64_t)t->data - offset : t->storage_id;
  *start = t->strides ? storage + offset : storage;
  *end = t->strides ? *start + pb_span(t) * t->itemsize : storage + t->storage_nbytes;
}

/* Whether two tensors have an element in common; 1 also where that cannot be told:
 * pytorch_bridge/aliasing/unalias.py, overlap. */
static int pb_overlap(const TensorInfo *a, const TensorInfo *b) {
  int mine[16], theirs[16], n, m;
  int64_t index[16] = {0}, begin, end, start, stop;
  if (!a->numel || !b->numel || a->device.type != b->device.type) return 0;
  if (!(a->data && b->data) && a->storage_id != b->storage_id) return 0;
  pb_bytes(a, &begin, &end);
  pb_bytes(b, &start, &stop);
  if (end <= start || stop <= begin) return 0;
  if (!a->strides || !b->strides) return 1;
  if (a->itemsize != b->itemsize || (begin - start) % a->itemsize) return 1;
  if ((a->flags & b->flags) & TensorNonOverlapping) return 1;
  n = pb_dims(a, mine);
  m = pb_dims(b, theirs);
  if (n < 0 || m < 0) return 1;
  /* Each place of b must be found by dividing: an outer stride jumps over all that is inside. */
  for (int64_t k = m, inside = 1; k-- > 0;) {
    const int d = theirs[k];
    if (b->strides[d] < inside) return 1;
    inside += (b->sizes[d] - 1) * b->strides[d];
  }
  for (;;) {
    int k;
    int64_t rest = (begin - start) / a->itemsize;
    for (k = 0; k < n; k++) rest += index[k] * a->strides[mine[k]];
    if (rest >= 0) {
      for (k = 0; k < m; k++) {
        const int d = theirs[k];
        int64_t i = rest / b->strides[d];
        if (i >= b->sizes[d]) i = b->sizes[d] - 1;
        rest -= i * b->strides[d];
      }
      if (rest == 0) return 1;
    }
    for (k = n - 1; k >= 0; k--) {
      if (++index[k] < a->sizes[mine[k]]) break;
      index[k] = 0;
    }
    if (k < 0) return 0;
  }
}

typedef struct {
  int64_t start, end;
  int place;
} pb_place;

static int pb_by_start(const void *a, const void *b) {
  const pb_place *x = (const pb_place *)a, *y = (const pb_place *)b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return x->place - y->place;
}

static const char *pb_shares(const char *format, const char *a, const char *b) {
  char text[512];
  snprintf(text, sizeof text, format, a, b);
  return cgotorch_make_error("ValueError", text);
}

/* Sets out to the tensors, and to copies of those that are read and overlap one that is written
 * into, unless these are to be refused; all are new references. */
static const char *pb_separate(const Tensor *in, const unsigned char *written,
                               const char *const *names, int n, int refuse,
                               Tensor *out) {
  const char *error = NULL;
  TensorInfo *info = (TensorInfo *)malloc((size_t)n * sizeof *info);
  pb_place *order = (pb_place *)malloc((size_t)n * sizeof *order);
  if (!info || !order) error = cgotorch_make_error("MemoryError", "Separate");
  for (int i = 0; !error && i < n; i++) {
    order[i].start = order[i].end = 0;
    order[i].place = i;
    if (!in[i]) continue; /* none */
    if ((error = GetTensorInfo(in[i], &info[i]))) break;
    if (info[i].numel && info[i].storage_id) pb_bytes(&info[i], &order[i].start, &order[i].end);
    if (!written[i] || !info[i].numel || !info[i].strides) continue;
    for (int64_t d = 0; d < info[i].ndim; d++)
      if (info[i].strides[d] == 0 && info[i].sizes[d] > 1 && !error)
        error = pb_shares("%s is written into, and several of its elements are one in memory: give "
                          "a copy%s", names[i], "");
  }
  if (!error) qsort(order, (size_t)n, sizeof *order, pb_by_start);
  for (int i = 0; !error && i < n; i++) {
    for (int j = i + 1; !error && j < n && order[j].start < order[i].end; j++) {
      const int p = order[i].place, q = order[j].place;
      const int a = p < q ? p : q, b = p < q ? q : p; /* in messages, as they are given */
      if (!(written[a] || written[b]) || !pb_overlap(&info[a], &info[b])) continue;
      if (written[a] && written[b])
        error = pb_shares("%s and %s are both written into, and share memory: give one of them a "
                          "copy", names[a], names[b]);
      else if (refuse)
        error = pb_shares("%s is written into, and shares memory with %s: give one of them a copy",
                          names[written[a] ? a : b], names[written[a] ? b : a]);
      else if (!out[written[a] ? b : a])
        error = Clone(in[written[a] ? b : a], NULL, &out[written[a] ? b : a]);
    }
  }
  for (int i = 0; i < n; i++) {
    if (error) {
      FreeTensor(out[i]);
      out[i] = NULL;
    } else if (!out[i] && in[i]) {
      out[i] = RetainTensor(in[i]);
    }
  }
  free(info);
  free(order);
  return error;
}
"""
