"""Row D10: what stands on package gotorch reaches libtorch through it alone."""

from __future__ import annotations

import json

from pytorch_bridge.testing.gotests import run_go


def packages() -> list[dict]:
    """The packages of the module, as `go list` describes them."""
    done = run_go("list", "-json=ImportPath,CgoFiles,Imports", "./gotorch/...")
    assert done.returncode == 0, done.stderr
    return json.loads("[" + done.stdout.replace("}\n{", "},{") + "]")


def test_d10_only_gotorch_itself_uses_cgo():
    with_cgo = [p["ImportPath"] for p in packages() if p.get("CgoFiles")]
    assert with_cgo == ["gotorch.dev/gotorch"]


def test_d10_the_core_does_not_depend_on_the_library_above_it():
    core = next(p for p in packages() if p["ImportPath"] == "gotorch.dev/gotorch")
    above = [i for i in core["Imports"] if i.startswith("gotorch.dev/")]
    assert all(i.startswith("gotorch.dev/gotorch/internal/") for i in above), above
