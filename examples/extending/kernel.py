"""A kernel in C with its gradient as an op of graphs, in one file outside the package.

    python examples/extending/kernel.py

`bias_gelu(x, bias)` adds a bias to the rows of a matrix and applies GELU (its tanh form) in one
pass over memory.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pytorch_bridge.extending import Apply, CBuilder, Op, TensorType, TypingError, jit, overload

# d/dv gelu(v), and gelu(v), for v = x + bias
SUPPORT = """
static inline float example_tanh_argument(float v) {
  return 0.7978845608028654f * (v + 0.044715f * v * v * v);
}
static inline float example_gelu(float v) {
  return 0.5f * v * (1.0f + tanhf(example_tanh_argument(v)));
}
static inline float example_gelu_slope(float v) {
  float t = tanhf(example_tanh_argument(v));
  float du = 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * v * v);
  return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * du;
}
"""


class _RowKernel(Op):
    """An op on float32 matrices that computes each element on its own; a bias is given for each
    column."""

    __props__ = ()
    expression = ""  # of the elements x, bias and, where there is a third input, g

    def make_node(self, x, bias, *rest):
        for name, v, ndim in (("x", x, 2), ("bias", bias, 1)):
            if (v.type.dtype, v.type.ndim) != ("float32", ndim):
                raise TypingError(
                    f"{self}: {name} is to be float32 with {ndim} dimensions, not {v.type}"
                )
        return Apply(self, [x, bias, *rest], [TensorType("float32", x.type.shape)()])

    def c_code(self, node, name, inputs, outputs, sub):
        b = CBuilder(name, sub["fail"])
        tensors = [b.call("Contiguous", b.expression(n, "Tensor"), 0) for n in inputs]
        infos = [b.call("GetTensorInfo", t) for t in tensors]
        sizes = [b.load(b.member(i, "sizes", "const int64_t *"), 0) for i in infos]
        columns = b.load(b.member(infos[0], "sizes", "const int64_t *"), 1)
        b.check(
            sizes[1] == columns,
            "ValueError",
            "bias_gelu: {} columns have {} biases",
            columns,
            sizes[1],
        )
        out = b.call("EmptyLike", tensors[0], None, None, None, None, None)
        data = [b.cast(b.call("TensorData", t), "const float *") for t in tensors]
        result = b.cast(b.call("TensorData", out), "float *")
        element = self.expression.format(
            x=f"{data[0].text}[i]",
            bias=f"{data[1].text}[i % {columns.text}]",
            g=f"{data[-1].text}[i]",
        )
        n = b.member(infos[0], "numel", "int64_t")
        b.emit(f"for (int64_t i = 0; i < {n.text}; i++) {result.text}[i] = {element};")
        b.move_to(outputs[0], out)
        return b.block()

    def c_support_code(self):
        return [*CBuilder.support_code(), SUPPORT]

    def c_headers(self):
        return ["cgotorch.h", "<math.h>"]

    def c_needs_gil(self, node):
        return False

    def c_code_cache_version(self):
        return (1,)


class BiasGelu(_RowKernel):
    expression = "example_gelu({x} + {bias})"

    def grad(self, inputs, output_grads):
        x, bias = inputs
        slope = bias_gelu_slope(x, bias, output_grads[0])
        return [slope, slope.sum(0)]

    def perform(self, node, inputs, output_storage):
        x, bias = inputs
        output_storage[0][0] = F.gelu(x + bias, approximate="tanh")


class BiasGeluSlope(_RowKernel):
    expression = "{g} * example_gelu_slope({x} + {bias})"


bias_gelu_op = BiasGelu()
bias_gelu_slope = BiasGeluSlope()


def bias_gelu(x, bias):
    """What plain Python calls."""
    return F.gelu(x + bias, approximate="tanh")


@overload(bias_gelu)
def fused_bias_gelu(x, bias):
    """In compiled functions the op is called instead, for the types that it has C for."""
    if (x.dtype, x.ndim, bias.dtype, bias.ndim) == ("float32", 2, "float32", 1):

        def fused(x, bias):
            return bias_gelu_op(x, bias)

        return fused

    def plain(x, bias):
        return F.gelu(x + bias, approximate="tanh")

    return plain


@jit
def model(x, w1, b1, w2, b2):
    return bias_gelu(x @ w1, b1) @ w2 + b2


if __name__ == "__main__":
    torch.manual_seed(0)
    x, w1, b1, w2, b2 = (torch.randn(s) for s in ((5, 4), (4, 8), (8,), (8, 2), (2,)))
    print(torch.dist(model(x, w1, b1, w2, b2), bias_gelu(x @ w1, b1) @ w2 + b2).item() < 1e-5)
