"""Makes what the graph workers of `make bench` load: for each model a package of AOTInductor and a
Go package, and the Go program that calls these.

    python bench/graph_prepare.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from graph_models import MODELS, make
from graph_models import __file__ as models_file

import pytorch_bridge as pb
from pytorch_bridge.native import toolchain

MAIN = """\
// Answers like the other workers of `make bench`, with the packages that export_go has written.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gotorch.dev/gotorch"
%(imports)s
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func main() {
	gotorch.SetNumThreads(1)
	cases := map[string]func(){}
%(cases)s
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name, count, _ := strings.Cut(in.Text(), " ")
		n := must(strconv.Atoi(count))
		body, ok := cases[name]
		if !ok {
			fmt.Println("none")
			continue
		}
		wall, cpu := time.Now(), cpuTime()
		for n > 0 {
			some := min(n, 100)
			gotorch.InferenceMode(func() {
				for range some { // as a server has it: a Scope for each request
					gotorch.Scope0(func(*gotorch.ScopeHandle) { body() })
				}
			})
			n -= some
		}
		fmt.Println(time.Since(wall).Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
	}
}
"""


def _randn(x: torch.Tensor) -> str:
    """Go that makes a tensor of the size and dtype of x."""
    size = f"[]int64{{{', '.join(map(str, x.shape))}}}"
    dtype = str(x.dtype).removeprefix("torch.").capitalize().replace("Bf", "BF")
    return f"gotorch.Randn({size}, gotorch.TensorOptions{{DType: gotorch.{dtype}}})"


def main(folder: Path) -> None:
    go = folder / "go"
    imports, cases = [], []
    for case in MODELS:
        module, inputs = make(case)
        program = torch.export.export(module, inputs)
        name = case.replace("_", "")
        pb.export_go(pb.from_exported(program), go / name, package=name)
        imports.append(f'\t"graphs/{name}"')
        values = [_randn(x) for x in inputs]
        names = ", ".join(f"x{i}" for i in range(len(values)))
        callee = f'must({name}.Load("{go / name}"))' if list(module.parameters()) else name
        cases.append(f"\t{{\n\t\t{names} := {', '.join(values)}")
        if callee != name:
            cases.append(f"\t\tnet := {callee}")
            callee = "net"
        cases.append(f'\t\tcases["{case}"] = func() {{ {callee}.Forward({names}) }}\n\t}}')

        package = folder / f"{case}.pt2"
        if not package.exists() or package.stat().st_mtime < Path(models_file).stat().st_mtime:
            torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    (go / "main.go").write_text(MAIN % {"imports": "\n".join(imports), "cases": "\n".join(cases)})
    (go / "go.mod").write_text(
        "module graphs\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {toolchain.ROOT}\n"
    )


torch.set_num_threads(1)
main(Path(sys.argv[1]).resolve())
