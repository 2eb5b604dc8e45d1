"""`gotorch env`: what a program outside a checkout needs to build.

In a shell: eval "$(gotorch env)", in a checkout eval "$(.venv/bin/python -m pytorch_bridge env)"
"""

from __future__ import annotations

import json
import os
import shlex

from pytorch_bridge import __version__
from pytorch_bridge.native import prebuilt_library, toolchain
from pytorch_bridge.native.toolchain import ROOT


def variables() -> dict[str, str]:
    """The environment variables to set, with their whole values. The library is there then, unless
    it is a checkout's that has not been built."""
    paths = [str(prebuilt_library.ensure().parent / "pkgconfig")]
    paths += [p for p in os.environ.get("PKG_CONFIG_PATH", "").split(":") if p not in ("", *paths)]
    return {
        "PKG_CONFIG_PATH": ":".join(paths),
        **toolchain.go_environment(toolchain.find_go()),
    }


def shell() -> str:
    """The variables as a shell takes them, and what to put into another module's go.mod."""
    root = json.dumps(str(ROOT)) if " " in str(ROOT) else ROOT
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables().items()]
    # Last, and each on its own line, so that `eval $(... env)` without quotes loses only them.
    lines += [
        f"# In the go.mod of a program{'' if toolchain.INSTALLED else ' outside this repository'}:",
        f"#   require gotorch.dev v{__version__ if toolchain.INSTALLED else '0.0.0'}",
        f"#   replace gotorch.dev => {root}",
        "# A C program: cc main.c $(pkg-config --cflags --libs cgotorch)",
    ]
    return "\n".join(lines)


def main(form: str) -> int:
    """Prints the variables as shell lines or as JSON."""
    print(json.dumps(variables(), indent=2) if form == "json" else shell())
    return 0
