"""A Go package from a graph: what `pytorch_bridge.export_go` writes.

`export.py` is the function itself; `c_file.py`, `go_file.py` and `abi.py` write the sources, with
what `crossing.py` says of the inputs and outputs; `weights.py` and `golden.py` the data;
`folder.py` puts all of it in its place.
"""

from .export import export_go
from .folder import ExportError

__all__ = ["ExportError", "export_go"]
