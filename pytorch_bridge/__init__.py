"""pytorch_bridge writes, builds and checks gotorch, PyTorch for Go.

    python -m pytorch_bridge doctor     what is installed, what is missing, what to type
    python -m pytorch_bridge generate   the C and Go functions, from PyTorch's own schema
    python -m pytorch_bridge build      libcgotorch.so, for the torch that is installed

Importing the package imports neither torch nor anything else that takes time.
"""
