"""The command line: `python -m pytorch_bridge COMMAND`.

A command is one function marked `@command` that adds its options to a parser and returns what
runs it. Its module is imported only when it runs, so that `env` does not wait for torchgen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytorch_bridge import __version__
from pytorch_bridge.cli.program_name import called
from pytorch_bridge.errors import CompileError
from pytorch_bridge.native.toolchain import INSTALLED, Missing

Run = Callable[[argparse.Namespace], int]
_commands: dict[str, Callable[[argparse.ArgumentParser], Run]] = {}
_OF_A_CHECKOUT = ("generate", "coverage", "bench", "release")
"""What writes into a checkout, or needs what only a checkout has."""


def command(setup: Callable[[argparse.ArgumentParser], Run]) -> Callable[..., Run]:
    """Registers a command under its function's name; the doc string's first line is its help."""
    _commands[setup.__name__] = setup
    return setup


@command
def generate(parser: argparse.ArgumentParser) -> Run:
    """Write the C header, C++ shards and Go files from the schema of the installed torch."""
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if anything would change"
    )

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.codegen.generate import main

        return main(check=options.check)

    return run


@command
def bundle(parser: argparse.ArgumentParser) -> Run:
    """Gather a Go program with its libraries and models in a folder that runs anywhere."""
    parser.add_argument("program", help="the Go program: a folder or an import path")
    parser.add_argument(
        "--out",
        "-o",
        type=Path,
        metavar="DIR",
        required=True,
        help="the new folder, or a bundle to replace",
    )
    parser.add_argument(
        "--name", default="", help="what the program is called there; by default as go calls it"
    )
    parser.add_argument("--cpu", action="store_true", help="leave out what only a GPU needs")
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH[=DEST]",
        help="a file or folder that the program reads; may be given several times",
    )
    parser.add_argument("--tags", default="", help="build tags, as go build has them")
    parser.add_argument("--ldflags", default="", help="flags of Go's linker, as go build has them")
    parser.add_argument(
        "--build-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="another flag of go build: --build-flag=-race",
    )
    parser.add_argument(
        "--sbom", action="store_true", help="add sbom.spdx.json, a bill of materials"
    )
    parser.add_argument(
        "--tar",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="also one file, .tar or .tar.gz; default DIR.tar",
    )
    parser.add_argument(
        "--oci",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="LAYOUT",
        help="also an OCI image; default DIR.oci",
    )
    parser.add_argument(
        "--base",
        default="",
        help="the image to build on: debian:12-slim, a folder or a file of docker save",
    )
    parser.add_argument(
        "--ref", default="latest", help="the name of the image in its layout: latest"
    )

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.cli.bundle import main

        return main(options)

    return run


@command
def coverage(parser: argparse.ArgumentParser) -> Run:
    """Print which functions are generated, and write docs/coverage.md and docs/pytorch-names.md."""

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.codegen.coverage import main

        return main()

    return run


@command
def build(parser: argparse.ArgumentParser) -> Run:
    """Compile libcgotorch.so for the installed torch."""
    parser.add_argument("--jobs", "-j", type=int, help="compilers at once; default one per core")
    parser.add_argument("--torch", type=Path, metavar="DIR", help="folder of another torch")
    parser.add_argument(
        "--sanitize", choices=["address", "thread"], help="build with this sanitizer"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="print every command")

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.native.build import main

        return main(options.jobs, options.torch, options.sanitize, options.verbose)

    return run


@command
def bench(parser: argparse.ArgumentParser) -> Run:
    """Measure Go against C++ and Python, and write docs/benchmarks.md."""
    parser.add_argument("cases", nargs="*", help="measure only these, and write nothing")
    parser.add_argument("--rounds", type=int, help="repetitions; more are steadier")
    parser.add_argument(
        "--peers",
        dest="alone",
        action="store_const",
        const="peers",
        default="",
        help="beside tch-rs and GoMLX, with the torch of tch-rs; writes docs/benchmarks-peers.md",
    )
    parser.add_argument(
        "--cuda",
        dest="alone",
        action="store_const",
        const="cuda",
        help="on a GPU; writes docs/benchmarks-cuda.md",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="package serve beside other servers; writes docs/benchmarks-serving.md",
    )
    parser.add_argument(
        "--section",
        choices=["functions", "training", "ranks", "loading", "graphs"],
        help="measure this section of docs/benchmarks.md again, and leave the others",
    )

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.bench import ROUNDS, again, machine, main, serving

        if options.serve:
            return serving.main(machine(), options.cases, (options.rounds or ROUNDS) / ROUNDS)
        if options.section:
            return again(options.section, options.rounds or ROUNDS)
        return main(options.rounds or ROUNDS, options.cases, alone=options.alone)

    return run


@command
def export(parser: argparse.ArgumentParser) -> Run:
    """Write a Go package, or a folder for a server, for what torch.export.save has saved."""
    parser.add_argument("model", type=Path, help="the file of torch.export.save, model.pt2")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--go", type=Path, metavar="DIR", help="the new folder of a Go package")
    form.add_argument(
        "--model",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="the new folder of a model that a running program or server loads: models/digits/1",
    )
    parser.add_argument(
        "--name", help="the name of the function, Forward, or of the model, the folder's"
    )
    package = parser.add_argument_group("with --go")
    package.add_argument("--package", help="the name of the Go package; by default the folder's")
    package.add_argument("--module", help="write a go.mod that names this module")
    package.add_argument(
        "--training", action="store_true", help="add TrainStep: cross entropy and SGD"
    )
    package.add_argument("--device", help="where the package computes: cuda, cuda:1")
    model = parser.add_argument_group("with --model")
    for side in ("input", "output"):
        model.add_argument(
            f"--{side}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"what clients call an {side}; once for each, in their order",
        )
    model.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="OUTPUT=INPUT",
        help="this output is this input of a sequence's next call; may be given several times",
    )

    def run(options: argparse.Namespace) -> int:
        other, form = (model, "--go") if options.go is not None else (package, "--model")
        for action in other._group_actions:
            if getattr(options, action.dest) != action.default:
                parser.error(f"argument {action.option_strings[0]}: not allowed with {form}")

        from pytorch_bridge.cli.export import main

        return main(options)

    return run


@command
def release(parser: argparse.ArgumentParser) -> Run:
    """Write a wheel and a module proxy, what users install, into dist/."""
    parser.add_argument(
        "--library", action="store_true", help="only the library for the torch of this Python"
    )
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="the folder of a library that --library has made with another torch",
    )
    parser.add_argument("--out", "-o", type=Path, default=Path("dist"), help="the folder: dist")
    parser.add_argument("--jobs", "-j", type=int, help="compilers at once; default one per core")

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.packages.release import main, make_library

        if options.library:
            print(make_library(options.jobs).path)
            return 0
        return main(options.out, options.add, options.jobs)

    return run


@command
def doctor(parser: argparse.ArgumentParser) -> Run:
    """Say what is installed, what is missing, and what to type."""

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.cli.doctor import main

        return main()

    return run


@command
def env(parser: argparse.ArgumentParser) -> Run:
    """Print what a Go or C program outside this repository needs: eval "$(... env)"."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shell", dest="form", action="store_const", const="shell", default="shell")
    form.add_argument("--json", dest="form", action="store_const", const="json")

    def run(options: argparse.Namespace) -> int:
        from pytorch_bridge.native.env import main

        return main(options.form)

    return run


_TAKES_FLAGS = ("--ldflags", "--build-flag")


def _joined(argv: Sequence[str]) -> list[str]:
    """`--ldflags=-s` for `--ldflags -s`, as people type it for go build: argparse takes what begins
    with a dash for another option."""
    found: list[str] = []
    for word in argv:
        if found and found[-1] in _TAKES_FLAGS:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog=called(),
        description="Writes, builds and checks gotorch.",
    )
    parser.add_argument("--version", action="version", version=f"gotorch {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, setup in sorted(_commands.items()):
        if INSTALLED and name in _OF_A_CHECKOUT:
            continue
        summary = (setup.__doc__ or "").strip().splitlines()[0]
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        subparser.set_defaults(run=setup(subparser))
    options = parser.parse_args(_joined(sys.argv[1:] if argv is None else argv))
    try:
        return int(options.run(options))
    except (CompileError, Missing) as err:
        print(f"{parser.prog}: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; Python would complain at exit
        return 141
