"""Rewrites: a graph becomes another that computes the same values with less work.

Each changes nothing that a caller can observe, and is validated or taken back. They are, in order,

    fold       what depends on constants only becomes one
    canonical  what does nothing, or undoes what was done, goes
    copies     copies go that nobody can tell from what they are of
    merge      what is computed twice is computed once
    writes     what is written into a part of a tensor is written at once
    fuse       elementwise ops that follow each other become one loop
    inplace    results are made in memory that nobody needs any more

Each is a function in a module of its name; `register_rewrite` adds others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import BridgeValueError, RegistrationError
from ..graph.function_graph import FunctionGraph
from ..registry import Table, check, load_extensions
from . import canonical, copies, fold, fuse, in_place, merge, partial_writes
from .rules import Rule, Rules

__all__ = ["Rule", "Rules", "names", "register_rewrite", "rewrite"]

Pass = Callable[[FunctionGraph], int]
_passes = Table("rewrite", unique=True, resolved=False)


def register_rewrite(name: str, rewrite: Pass, after: str | None = "copies") -> None:
    """Adds a rewrite to those that every graph is given before it is compiled.

        >>> from pytorch_bridge.rewrite import names
        >>> with pb.temporary():
        ...     pb.register_rewrite("nothing", lambda fgraph: 0, after="fold")
        ...     names()[:3]
        ['fold', 'nothing', 'canonical']

    It takes a FunctionGraph, changes it by `try_replace` and its like, and returns how much it has
    done. It comes right `after` another one, behind those that were registered for that place
    before; with None it comes last. What is compiled already stays as it is.

    DuplicateError where the name is taken, RegistrationError where there is no rewrite `after`.
    """
    check("rewrite", name, rewrite)
    if after is not None and _passes.one(after) is None:
        raise RegistrationError(
            f"the rewrite {name!r} cannot come after {after!r}: there are {', '.join(names())}"
        )
    _passes.add(name, (rewrite, after), rewrite)


def names() -> list[str]:
    """The rewrites in the order in which they are applied."""
    following: dict[str | None, list[str]] = {}
    for entry in _passes.entries():
        after = entry.value[1]
        # What it was to come after may have been withdrawn.
        known = after if _passes.one(after) is not None else None
        following.setdefault(known, []).append(str(entry.key))

    def behind(name: str | None) -> list[str]:
        return [n for found in following.get(name, ()) for n in (found, *behind(found))]

    return behind(None)


register_rewrite("fold", fold.fold, after=None)
register_rewrite("canonical", canonical.rule.apply, after=None)
register_rewrite("copies", copies.rule.apply, after=None)
register_rewrite("merge", merge.merge_apart, after=None)
register_rewrite("writes", partial_writes.writes, after=None)
register_rewrite("fuse", fuse.fuse, after=None)
register_rewrite("inplace", in_place.inplace, after=None)


def rewrite(fgraph: FunctionGraph, passes: bool | Iterable[str] | None = None) -> dict[str, int]:
    """Applies the passes in their order, whatever order they are named in; True and None mean all
    of them, False none. Returns how much each has done.

    BridgeValueError for a name that is no pass.
    """
    load_extensions()
    known = names()
    if passes is None or isinstance(passes, bool):
        chosen = set() if passes is False else set(known)
    else:
        chosen = {passes} if isinstance(passes, str) else set(passes)
    for name in sorted(chosen.difference(known)):
        raise BridgeValueError(f"there is no rewrite {name!r}: there are {', '.join(known)}")
    return {name: _passes.one(name)[0](fgraph) for name in known if name in chosen}
