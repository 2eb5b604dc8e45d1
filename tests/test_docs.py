"""The documentation is true: its examples compile, run and print what it says, its links lead
somewhere, and the files and commands it names exist.

A page is run from top to bottom, in a folder of its own, beside a link `gotorch-checkout` to this
repository. Blocks of one language share their variables, so that a page reads as one session; Go,
Python and C take turns in the page's order, so that one can read a file that another has written.

- A Go block with `package main` is a program by itself. In others, declarations that start a line
  go to the package, and the rest is run in order. IMPORTS are there already.
- A Go block whose first line is a comment with a file's name, and whose package is not main or which
  is in a folder, is that file in the page's folder.
- A C block with a main is a program by itself; the others of a page make up one.
- A ```bash block is run, in the page's folder. A ```sh block is not, but for those of the pages in
  TYPED_ELSEWHERE.
- A ```text block is what the block before it prints, and so is an `// Output:` comment at the end
  of a Go block. `...` stands for anything.
- In a table headed `Python | Go` both cells of a row are run on the same variables, and the values
  of the two expressions, or what they assign with :=, must print the same. Rows of a table headed
  `Python statement | Go statement` are run only.

All Go blocks are built as one program: with the library in Go's cache, that takes some seconds.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytorch_bridge.cli import commands
from pytorch_bridge.native import env, toolchain
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

# What fragments of Go may use without importing it, with one name of each package.
IMPORTS = {
    "context": "Background",
    "errors": "Is",
    "fmt": "Println",
    "io": "ReadAll",
    "log/slog": "Default",
    "iter": "Pull2[int, int]",
    "math": "Pi",
    "math/rand/v2": "IntN",
    "net": "Listen",
    "net/http": "Get",
    "os": "Remove",
    "runtime": "GC",
    "strings": "Repeat",
    "time": "Now",
    "google.golang.org/grpc": "NewServer",
    "gotorch.dev/gotorch": "Ones",
    "gotorch.dev/gotorch/aoti": "Load",
    "gotorch.dev/gotorch/data": "NewTensorDataset",
    "gotorch.dev/gotorch/graph": "Open",
    "gotorch.dev/gotorch/data/cifar": "Open",
    "gotorch.dev/gotorch/data/csvdata": "Open",
    "gotorch.dev/gotorch/data/imagefolder": "Open",
    "gotorch.dev/gotorch/data/lines": "Open",
    "gotorch.dev/gotorch/data/mnist": "OpenSample",
    "gotorch.dev/gotorch/data/npy": "Load",
    "gotorch.dev/gotorch/data/parquet": "Open",
    "gotorch.dev/gotorch/data/safetensors": "Open",
    "gotorch.dev/gotorch/data/tabular": "Columns",
    "gotorch.dev/gotorch/data/tokens": "Open",
    "gotorch.dev/gotorch/data/webdataset": "New",
    "gotorch.dev/gotorch/functorch": "None",
    "gotorch.dev/gotorch/gotorchtest": "GradCheck",
    "gotorch.dev/gotorch/hub": "Open",
    "gotorch.dev/gotorch/jit": "Load",
    "gotorch.dev/gotorch/nn": "ReLU",
    "gotorch.dev/gotorch/nn/utils/parametrizations": "MatrixExp",
    "gotorch.dev/gotorch/nn/utils/parametrize": "Refresh",
    "gotorch.dev/gotorch/nn/utils/prune": "IsPruned",
    "gotorch.dev/gotorch/distributions": "Normal",
    "gotorch.dev/gotorch/distributions/constraints": "Real",
    "gotorch.dev/gotorch/distributions/transforms": "Exp",
    "gotorch.dev/gotorch/nn/functional": "ReLU",
    "gotorch.dev/gotorch/metrics": "Eval",
    "gotorch.dev/gotorch/distributed": "Init",
    "gotorch.dev/gotorch/distributed/checkpoint": "Read",
    "gotorch.dev/gotorch/distributed/parallel": "CopyToRegion",
    "gotorch.dev/gotorch/optim": "AdamW",
    "gotorch.dev/gotorch/optim/lrscheduler": "StepLR",
    "gotorch.dev/gotorch/optim/swautils": "GetEMAMultiAvgFn",
    "gotorch.dev/gotorch/profiler": "New",
    "gotorch.dev/gotorch/serve": "New",
    "gotorch.dev/gotorch/serve/daemon": "Default",
    "gotorch.dev/gotorch/serve/middleware": "Log",
    "gotorch.dev/gotorch/serve/page": "Handler",
    "gotorch.dev/gotorch/train": "Accuracy",
    "gotorch.dev/gotorch/train/plot": "Losses",
    "gotorch.dev/gotorch/train/tensorboard": "NewSummaryWriter",
    "gotorch.dev/gotorch/vision/imageio": "Read",
    "gotorch.dev/gotorch/vision/models": "ResNet18",
    "gotorch.dev/gotorch/vision/models/detection": "OverwriteEps",
    "gotorch.dev/gotorch/vision/ops": "NMS",
}
ALIASES = {"gotorch.dev/gotorch/nn/functional": "F", "math/rand/v2": "rand"}

TYPED_ELSEWHERE = {"install.md"}
"""Pages whose ```sh blocks another test types: tests/test_install.py."""

END = "\x1e"
"""Ends what a block prints."""


@dataclass
class Block:
    page: Path
    line: int  # of its first line of text
    language: str
    text: str
    expected: str | None = None

    @property
    def where(self) -> str:
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


@dataclass
class Row:
    """A row of a table headed `Python | Go`, or of one of statements."""

    page: Path
    line: int
    python: str
    go: str
    is_statement: bool

    @property
    def where(self) -> str:
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"

    @property
    def names(self) -> list[str] | None:
        """What the row assigns; [] where it is an expression, None where it is only run."""
        if self.is_statement:
            return None
        for statement in ast.parse(self.python).body:
            if isinstance(statement, ast.Assign):
                target = statement.targets[0]
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                return [ast.unparse(name) for name in names]
        return []


@dataclass
class Page:
    path: Path
    steps: list[Block | Row] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)  # lines outside of blocks
    shell: list[tuple[int, str]] = field(default_factory=list)  # lines of blocks in no language

    @property
    def name(self) -> str:
        return re.sub(r"\W", "_", self.path.stem.lower())


def read(path: Path) -> Page:
    """Parses a page."""
    page = Page(path)
    fence: Block | None = None
    previous: Block | None = None  # the block that a ```text block would belong to
    table = None  # the heads of the table that a line is in
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if fence is not None:
            if line.strip() != "```":
                fence.text += line + "\n"
                continue
            if fence.language in ("go", "c", "python", "bash"):
                if fence.language == "bash":
                    page.shell += enumerate(fence.text.splitlines(), fence.line)
                page.steps.append(fence)
                previous = fence
                split = re.split(r"^// Output:\n", fence.text, maxsplit=1, flags=re.M)
                if fence.language == "go" and len(split) == 2:
                    fence.expected = re.sub(r"^// ?", "", split[1], flags=re.M)
            elif fence.language == "text":
                assert previous is not None, f"{fence.where}: no block before it prints this"
                previous.expected = fence.text
            elif fence.language in ("", "sh"):
                page.shell += enumerate(fence.text.splitlines(), fence.line)
                if path.name in TYPED_ELSEWHERE:
                    previous = fence
            else:
                raise AssertionError(f"{fence.where}: no test knows {fence.language}")
            fence = None
            continue
        if line.startswith("```"):
            fence = Block(path, number + 1, line[3:].strip(), "")
            continue
        page.prose.append((number, line))
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells in (["Python", "Go"], ["Python statement", "Go statement"]):
            table = cells
        elif not cells:
            table = None
        elif table and not set(cells[0]) <= set("-:"):
            code = [cell.replace("\\|", "|") for cell in cells]
            assert all(c.startswith("`") and c.endswith("`") for c in code), (
                f"{path.name}:{number}: a cell is no code"
            )
            python, go = (c.strip("`") for c in code)
            page.steps.append(Row(path, number, python, go, table[0] != "Python"))
    assert fence is None, f"{fence.where}: the block does not end"
    return page


@functools.cache
def pages() -> list[Page]:
    return [read(path) for path in PAGES]


# Go -------------------------------------------------------------------------------------------------


def is_go(step: Block | Row) -> bool:
    return isinstance(step, Row) or step.language == "go"


def is_program(block: Block | Row) -> bool:
    if isinstance(block, Row) or file_of(block):
        return False
    return bool(re.search(r"^package main$|^int main\(", block.text, re.M))


def file_of(block: Block | Row) -> str | None:
    """The file that a Go block of a package of its own is."""
    if isinstance(block, Row) or block.language != "go":
        return None
    match = re.match(r"// ([\w/.-]+\.go)\n(?:\n|//.*\n)*package (\w+)\n", block.text)
    return match[1] if match and (match[2] != "main" or "/" in match[1]) else None


GO_SHOW = """\
package show

import (
	"bufio"
	"fmt"
	"os"

	"gotorch.dev/gotorch"
)

var in = bufio.NewScanner(os.Stdin)

// Next ends a block, and waits until the next one may begin.
func Next() {
	fmt.Print("\\x1e\\n")
	if !in.Scan() {
		os.Exit(0)
	}
}

// Show prints values so that Python's, shown by the test, look the same.
func Show(values ...any) {
	for _, value := range values {
		switch v := value.(type) {
		case []gotorch.Tensor:
			for _, t := range v {
				fmt.Println(t)
			}
		case float32:
			fmt.Printf("%.6g\\n", v)
		case float64:
			fmt.Printf("%.6g\\n", v)
		default:
			fmt.Println(v)
		}
	}
}
"""


def go_page(package: str, page: Page) -> str:
    """A Go package whose Main runs the fragments of a page."""
    declarations, statements = "", ""
    for step in page.steps:
        if not is_go(step) or is_program(step) or file_of(step):
            continue
        place = f"//line {step.page}:{{}}\n"
        if isinstance(step, Row):
            names = step.names
            code = f"show.Show({step.go})" if names == [] else step.go
            if names:
                code += f"; show.Show({', '.join(names)})"
            elif match := re.search(r"([\w, ]+) :=", step.go):
                code += "".join(f"; _ = {name}" for name in match[1].split(","))
            if "cuda" in step.python:
                code = f"if gotorch.CUDAIsAvailable() {{ {code} }}"
            statements += "gotorch.ManualSeed(0)\n{\n" + place.format(step.line) + code + "\n}\n"
        else:
            declared: list[str] = []
            inside = ""  # what closes the declaration that a line is in
            for number, line in enumerate(step.text.splitlines(), step.line):
                if not inside and re.match(r"(type|import|const) |func (?!\(\))", line):
                    inside = {"{": "}", "(": ")"}.get(line.rstrip()[-1], line)
                    what = line.split()[0]
                if inside:
                    if what == "import":
                        for path in re.findall(r'"(.*?)"', line):
                            assert path in IMPORTS, f"{step.where}: {path} is not in IMPORTS"
                    else:
                        declarations += place.format(number) + line + "\n"
                    if line == inside:
                        inside = ""
                    continue
                statements += place.format(number) + line + "\n"
                # At the start of a line only, where it is the page's. `for x := range` is not.
                names = re.match(r"((?:\w+, )*\w+) :=|var (\w+)", line)
                if names:
                    declared += re.findall(r"\w+", names[1] or names[2])
            for name in declared:
                if name != "_":
                    statements += f"_ = {name}\n"
        statements += "show.Next()\n"
    imports = "".join(f'\t{ALIASES.get(path, "")} "{path}"\n' for path in IMPORTS)
    used = "".join(
        f"var _ = {ALIASES.get(path, path.split('/')[-1])}.{name}\n"
        for path, name in IMPORTS.items()
    )
    return (
        f'package {package}\n\nimport (\n{imports}\t"gotorch.dev/docs_test/show"\n)\n\n'
        f"{used}\n{declarations}\nfunc Main() {{\nshow.Next()\n{statements}}}\n"
    )


@pytest.fixture(scope="session")
def go_examples(library, tmp_path_factory) -> Path:
    """One program with all Go blocks: its argument says which page, or which program of a page."""
    folder = tmp_path_factory.mktemp("docs")
    sources = {"docs_test/show/show.go": GO_SHOW}
    mains = []
    for page in pages():
        sources[f"docs_test/{page.name}/page.go"] = go_page(page.name, page)
        mains.append(page.name)
        for i, block in enumerate(b for b in page.steps if is_go(b) and is_program(b)):
            name = f"{page.name}_{i}"
            text = block.text.replace("package main\n", f"package {name}\n", 1)
            text = text.replace("func main()", "func Main()", 1)
            sources[f"docs_test/{name}/main.go"] = f"//line {block.page}:{block.line}\n{text}"
            mains.append(name)
    imports = "".join(f'\t"gotorch.dev/docs_test/{name}"\n' for name in mains)
    cases = "".join(f'\tcase "{name}":\n\t\t{name}.Main()\n' for name in mains)
    sources["docs_test/main.go"] = (
        f'package main\n\nimport (\n\t"os"\n{imports})\n\n'
        f"func main() {{\n\tswitch os.Args[1] {{\n{cases}\t}}\n}}\n"
    )
    # The sources only seem to be in the repository, where they see its go.mod.
    overlay = {}
    for name, text in sources.items():
        path = folder / name.replace("/", "__")
        path.write_text(text)
        overlay[str(ROOT / name)] = str(path)
    (folder / "overlay.json").write_text(json.dumps({"Replace": overlay}))
    program = folder / "examples"
    env = toolchain.go_environment(toolchain.find_go())
    options = [
        "-buildvcs=false",
        "-gcflags=gotorch.dev/docs_test/...=-e",
        "-overlay",
        str(folder / "overlay.json"),
        "-o",
        str(program),
    ]
    built = run_go("build", *options, "./docs_test", **env)
    if built.returncode != 0:
        pytest.fail(f"the Go examples do not compile:\n{built.stderr}", pytrace=False)
    return program


# Python ---------------------------------------------------------------------------------------------

# torch is imported where a page needs it: that takes seconds.
PYTHON_WORKER = """
import json, sys

def show(value):
    import torch
    if isinstance(value, bool):
        print(str(value).lower())
    elif isinstance(value, float):
        print(f"{value:.6g}")
    elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        for v in value:
            show(v)
    elif isinstance(value, (list, tuple)):
        print("[" + " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) + "]")
    else:
        print(value)

variables = {"__name__": "__main__", "show": show}
print("\\x1e", flush=True)
for line in sys.stdin:
    step = json.loads(line)
    if step["seed"]:
        import torch
        torch.manual_seed(0)
    if "aoti_compile_and_package" in step["code"]:  # what one page compiles is what other tests run
        from pytorch_bridge.testing import packages
        packages.cached_compiler().__enter__()
    exec(compile("\\n" * (step["line"] - 1) + step["code"], step["file"], "exec"), variables)
    print("\\x1e", flush=True)
"""


def python_step(step: Block | Row) -> str:
    if isinstance(step, Block):
        code = step.text
    else:
        code = f"show({step.python})" if step.names == [] else step.python
        code += "".join(f"; show({name})" for name in step.names or ())
        if "cuda" in code:
            code = f"if torch.cuda.is_available(): {code}"
    place = {"file": str(step.page), "line": step.line, "seed": isinstance(step, Row)}
    return json.dumps({"code": code, **place})


# C --------------------------------------------------------------------------------------------------


def c_source(blocks: list[Block]) -> str:
    """One program of the fragments of a page."""
    includes, functions, statements = "", "", ""
    for block in blocks:
        place = f'#line {block.line} "{block.page}"\n'
        if re.match(r"static .*\) \{", block.text):
            functions += place + block.text
        else:
            statements += place
            for line in block.text.splitlines():
                if line.startswith("#include"):
                    includes += line + "\n"
                    line = ""
                statements += line + "\n"
        statements += 'printf("\\x1e\\n"); fflush(stdout); getchar();\n'
    return (
        f"#include <cgotorch.h>\n#include <stdio.h>\n#include <stdlib.h>\n{includes}\n{functions}\n"
        f'int main(void) {{\nprintf("\\x1e\\n"); fflush(stdout); getchar();\n'
        f"{statements}return 0;\n}}\n"
    )


def compile_c(source: str, folder: Path, name: str, library) -> Path:
    lib = library.library.parent
    (folder / f"{name}.c").write_text(source)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Werror", "-Wno-unused", f"-I{ROOT / 'cgotorch'}"]
    link = [f"-L{lib}", "-lcgotorch", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(
        ["cc", *flags, f"{name}.c", "-o", name, *link], cwd=folder, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.fail(f"the C examples do not compile:\n{done.stderr}", pytrace=False)
    return folder / name


# Running --------------------------------------------------------------------------------------------


class Session:
    """A process that runs the blocks of one language, one each time it is told to."""

    def __init__(self, command: list[str | Path], folder: Path) -> None:
        self.errors = (folder / f"{Path(command[0]).name}.stderr").open("w+")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.output("the start")

    def output(self, where: str) -> str:
        assert self.process.stdout is not None
        lines = ""
        for line in self.process.stdout:
            lines += line
            if lines.endswith(END + "\n"):
                return lines[: -len(END + "\n")]
        self.process.wait()
        self.errors.seek(0)
        pytest.fail(f"{where}: failed\n{lines}{self.errors.read()}", pytrace=False)

    def run(self, step: str, where: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()
        return self.output(where)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()


def alike(expected: str, got: str) -> bool:
    """Whether got is expected, in which `...` stands for anything."""

    def lines(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*?".join(re.escape(part) for part in lines(expected).split("..."))
    return re.fullmatch(pattern, lines(got), re.S) is not None


def output_of(command: list[str | Path], step: Block, folder: Path) -> str:
    """What a command prints, run as a user of the set-up's environment runs it."""
    variables, flags = env.variables(), os.environ.get("GOFLAGS", "")
    here = os.pathsep.join(
        [str(Path(sys.executable).parent), variables.get("PATH", os.environ["PATH"])]
    )
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        # What is bundled would be compiled anew, to have no path in it.
        env={
            **os.environ,
            **variables,
            "PATH": here,
            "GOFLAGS": f"{flags} -trimpath=false".strip(),
        },
    )
    if done.returncode != 0:
        pytest.fail(f"{step.where}: {done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def beside_checkout(tmp_path_factory) -> Path:
    """Where the pages have their folders, beside the checkout as they say."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "gotorch-checkout").symlink_to(ROOT)
    return folder


def run_page(
    page: Page, go_examples: Path, library, folder: Path
) -> Iterator[tuple[Block | Row, str, str | None]]:
    """Runs a page from top to bottom; yields each step, what it printed, and what it should have."""
    sessions: dict[str, Session] = {}

    def session(language: str) -> Session:
        if language not in sessions:
            if language == "go":
                command: list[str | Path] = [go_examples, page.name]
            elif language == "python":
                command = [sys.executable, "-c", PYTHON_WORKER]
            else:
                blocks = [b for b in page.steps if isinstance(b, Block) and b.language == "c"]
                source = c_source([b for b in blocks if not is_program(b)])
                command = [compile_c(source, folder, "fragments", library)]
            sessions[language] = Session(command, folder)
        return sessions[language]

    programs = 0
    try:
        for step in page.steps:
            if isinstance(step, Row):
                python = session("python").run(python_step(step), step.where)
                go = session("go").run("", step.where)
                yield step, go, None if step.names is None else python
                continue
            if file := file_of(step):
                assert isinstance(step, Block)
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(step.text)
                yield step, "", step.expected
                continue
            if is_program(step):
                if step.language == "go":
                    program = [go_examples, f"{page.name}_{programs}"]
                else:
                    program = [compile_c(step.text, folder, f"program_{programs}", library)]
                programs += step.language == "go"
                got = output_of(program, step, folder)
            elif step.language == "bash":
                # By another path Go would compile all of the checkout again.
                text = re.sub(r"(\.\./)+gotorch-checkout", str(ROOT), step.text)
                got = output_of(["bash", "-ec", text], step, folder)
            else:
                code = python_step(step) if step.language == "python" else ""
                got = session(step.language).run(code, step.where)
            yield step, got, step.expected
    finally:
        for each in sessions.values():
            each.close()


def mistakes(page: Page, go_examples: Path, library, folder: Path) -> str:
    """Where a page's examples print something else than it says; "" if nowhere."""
    ran, wrong = [], ""
    for step, got, expected in run_page(page, go_examples, library, folder):
        ran.append(step)
        if expected is not None and not alike(expected, got):
            wrong += f"{step.where}: it prints\n{got}\nand not\n{expected}\n"
    assert ran == page.steps
    return wrong


@pytest.mark.parametrize("page", [p for p in pages() if p.steps], ids=lambda p: p.path.name)
def test_examples(page: Page, go_examples, library, beside_checkout):
    folder = beside_checkout / page.name
    folder.mkdir()
    wrong = mistakes(page, go_examples, library, folder)
    if wrong:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "it prints\n1\n\nand not\n2"),
        ("```python\nprint(gone)\n```\n", "'gone' is not defined"),
        ('```c\nprintf("1\\n");\n```\n\n```text\n2\n```\n', "it prints\n1\n\nand not\n2"),
        ("```c\nTensor t = gone;\n```\n", "'gone' undeclared"),
        ("```c\nabort();\n```\n", "failed"),
    ],
)
def test_a_wrong_example_is_found(library, tmp_path, example, said):
    path = tmp_path / "page.md"
    path.write_text(example)
    try:
        wrong = mistakes(read(path), Path(), library, tmp_path)
    except pytest.fail.Exception as failure:
        wrong = str(failure)
    assert said in wrong.replace("‘", "'").replace("’", "'")


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a\n", "a  \n\n", True),
        ("a...c", "a\nb c", True),
        ("a\nb", "a b", False),
        ("1.", "12", False),
    ],
)
def test_alike(expected, got, same):
    assert alike(expected, got) == same


# Links and names ------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page: Page) -> list[str]:
    broken = []
    for number, line in page.prose:
        line = re.sub(r"`[^`]*`", "code", line)
        for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", line):
            if re.match(r"https?:", link):
                continue
            file, _, anchor = link.partition("#")
            target = page.path.parent / file if file else page.path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.path.name}:{number}: {link}")
    return broken


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.path.name)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


@functools.cache
def files() -> list[str]:
    """All files of the repository that are not built or installed, with a / before each."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f for f in folders if f not in (".git", "build", "__pycache__") and f[:5] != ".venv"
        ]
        found += [f"{folder}/{name}".removeprefix(str(ROOT)) for name in names + folders]
    return found


@functools.cache
def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z0-9-]+):(?!=)", text, re.M)) | set(
        re.findall(r"^([\w/]+):(?!=)", text, re.M)
    )


PACKAGES = {
    "gotorch": "gotorch",
    "nn": "gotorch/nn",
    "F": "gotorch/nn/functional",
    "optim": "gotorch/optim",
    "distributions": "gotorch/distributions",
    "constraints": "gotorch/distributions/constraints",
    "transforms": "gotorch/distributions/transforms gotorch/vision/transforms",
    "metrics": "gotorch/metrics",
    "data": "gotorch/data",
    "mnist": "gotorch/data/mnist",
    "train": "gotorch/train",
    "plot": "gotorch/train/plot",
    "gotorchtest": "gotorch/gotorchtest",
    "imageio": "gotorch/vision/imageio",
}


@functools.cache
def exported(package: str) -> set[str]:
    """The names that a Go package declares: functions, methods, types, constants, variables."""
    names: set[str] = set()
    folders = PACKAGES[package].split()
    for file in (f for folder in folders for f in (ROOT / folder).glob("*.go")):
        names |= set(
            re.findall(
                r"^(?:func (?:\(\w+ \*?\w+(?:\[\w+\])?\) )?|type |var |const |\t)([A-Z]\w*)",
                file.read_text(),
                re.M,
            )
        )
    return names


# Files of PyTorch's that pages speak of.
ELSEWHERE = {"native_functions.yaml"}

SUFFIXES = (".go", ".h", ".cc", ".c", ".py", ".yaml", ".md", ".toml", ".mod")


def unknown_names(page: Page) -> list[str]:
    """Files, commands and Go names in a page's prose and shell blocks that are not there."""
    spans = [(n, s) for n, line in page.prose for s in re.findall(r"`([^`]+)`", line)]
    missing = []
    for number, text in spans + page.shell:
        bad = []
        text = text.split("  #")[0].strip()
        if match := re.match(r"(?:sudo )?make ((?:[\w=.*'/<> -])+)", text):
            for word in match[1].split():
                if "=" in word:
                    break
                if word not in make_targets():
                    bad.append(f"make {word}")
        match = re.search(r"-m pytorch_bridge (\w+)", text)
        if match and match[1] not in commands._commands:
            bad.append(match[0])
        match = re.match(r"go (?:test|run|vet|build|doc) (\./\S+)", text)
        if match and not (ROOT / match[1].removesuffix("...")).exists():
            bad.append(match[1])
        if re.fullmatch(r"[\w./*-]+", text) and text.endswith(SUFFIXES) and text[0] not in ".*":
            pattern = re.escape("/" + text).replace(r"\*", "[^/]*") + "$"
            if text not in ELSEWHERE and not any(re.search(pattern, file) for file in files()):
                bad.append(text)
        is_folder = re.fullmatch(r"(\.?[\w-]+/)+", text) and not re.match(
            r"(build|dist|\.venv)/", text
        )
        if is_folder and not any(file.endswith("/" + text.rstrip("/")) for file in files()):
            bad.append(text)
        for package, name in re.findall(r"(?<![\w.])(\w+)\.([A-Z]\w*)", text):
            if package in PACKAGES and name not in exported(package):
                bad.append(f"{package}.{name}")
        missing += [f"{page.path.name}:{number}: {what}" for what in bad]
    return missing


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.path.name)
def test_files_and_commands_exist(page):
    assert unknown_names(page) == []


def test_a_wrong_name_or_link_is_found(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "`make demo`, `make coffee`, [a](gone.md), [b](page.md#c), `gotorch.MM`, `gotorch.MMM`,\n"
        "`cgotorch/thunk.h`, `thunk.hh.h`, `python -m pytorch_bridge repair`, `tests/`, `tests/x/`\n"
    )
    page = read(path)
    assert [line.split(": ")[1] for line in broken_links(page)] == ["gone.md", "page.md#c"]
    assert [line.split(": ")[1] for line in unknown_names(page)] == [
        "make coffee",
        "gotorch.MMM",
        "thunk.hh.h",
        "-m pytorch_bridge repair",
        "tests/x/",
    ]
