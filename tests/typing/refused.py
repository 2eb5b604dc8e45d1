"""What mypy is to refuse: every line that ends with a comment, for the reason there, and no other."""

from __future__ import annotations

import pytorch_bridge as pb
from pytorch_bridge import ops

x = pb.TensorType("float32", (2, 3))("x")

ops.softmx(x, -1)  # attr-defined
x.softmx(-1)  # attr-defined
ops.softmax("x", -1)  # call-overload
ops.softmax(x, -1.5)  # call-overload
ops.softmax(x, dim=-1, what=1)  # call-overload
ops.add(x)  # call-overload
ops.add.Nonsense(x, 1)  # attr-defined
ops.detach(x, 1)  # call-arg
x.relu(1)  # call-arg
x.reshape("a")  # arg-type
"a" + x.sum()  # operator
b = pb.no_such_name  # attr-defined
a: int = ops.mm(x, x)  # assignment
pb.grad(x, x) + "a"  # operator
pb.grad(x, [x]).relu()  # attr-defined
pb.grad(x, x, allow_unused=True).relu()  # union-attr
pb.dprint(1)  # arg-type
pb.export_go(1, "net")  # arg-type
pb.from_exported(x)  # arg-type
pb.Training(optimizer=0.1)  # arg-type
pb.register_linker("mine", print)  # arg-type
