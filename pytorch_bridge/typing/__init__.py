"""Where code that was written for Numba looks for `typing.typeof`. New code imports
pytorch_bridge.extending."""
