"""Programs outside the repository, in Go and in C, as a user builds them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from pytorch_bridge.native import env
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

pytestmark = pytest.mark.smoke

GO_PROGRAM = """\
package main

import (
	"fmt"

	"gotorch.dev/gotorch"
)

func main() {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	fmt.Println(gotorch.Data[float32](a.MM(a)))
}
"""

C_PROGRAM = """\
#include <cgotorch.h>
#include <stdio.h>

int main(void) {
  const float data[] = {1, 2, 3, 4, 5, 6};
  const int64_t sizes[] = {2, 3};
  Tensor a = NULL, b = NULL, c = NULL;
  float out[4];
  const char *err = TensorFromData(data, sizeof data, sizes, 2, 6, &a);
  if (!err) err = Transpose2D(a, &b);
  if (!err) err = MM(a, b, &c);
  if (!err) err = TensorCopyOut(c, out, sizeof out);
  if (err) {
    printf("%s\\n", err);
    return 1;
  }
  printf("%g %g %g %g\\n", out[0], out[1], out[2], out[3]);
  err = MM(a, a, &c);
  printf("%s\\n", err);
  FreeString(err);
  return 0;
}
"""


@pytest.fixture
def program(tmp_path):
    """A Go module beside the repository, with a name the linker could stumble over."""
    folder = tmp_path / "my program"
    folder.mkdir()
    (folder / "main.go").write_text(GO_PROGRAM)
    (folder / "go.mod").write_text(
        "module example.org/program\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )
    return folder


@pytest.mark.parametrize("tags", ["", "pkgconfig"])
def test_go_program_elsewhere_builds_and_runs(library, program, tags):
    if tags and not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    built = run_go("build", "-tags", tags, "-o", "prog", ".", cwd=program, **env.variables())
    assert built.stderr == ""
    # An empty environment: nothing like LD_LIBRARY_PATH may be needed.
    done = subprocess.run([program / "prog"], env={}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[7 10 15 22]\n", "")


def test_c_program_elsewhere_builds_with_pkg_config(library, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    (tmp_path / "main.c").write_text(C_PROGRAM)
    built = subprocess.run(
        ["sh", "-c", "cc -Wall -Werror main.c $(pkg-config --cflags --libs cgotorch) -o prog"],
        cwd=tmp_path,
        env={**os.environ, **env.variables()},
        capture_output=True,
        text=True,
    )
    assert built.stderr == ""
    import torch

    a = torch.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(RuntimeError) as refusal:
        a.mm(a)
    numbers = " ".join(f"{x:g}" for x in a.mm(a.t()).flatten().tolist())
    done = subprocess.run([tmp_path / "prog"], env={}, capture_output=True, text=True)
    assert done.stdout == f"{numbers}\nRuntimeError: {refusal.value}\n"
