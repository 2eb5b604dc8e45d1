"""The exceptions of the graph compiler.

Each is also the built-in exception that a reader of Python expects, so that `except TypeError`
catches what is one. Messages name the op, the variable and both sides of what disagrees.
"""

from __future__ import annotations


class BridgeError(Exception):
    """What every exception of this package derives from."""


class BridgeTypeError(BridgeError, TypeError):
    """A value or a variable has another type than is required."""


class BridgeValueError(BridgeError, ValueError):
    """A value of the right type that is not allowed."""


class MissingMethodError(BridgeError, NotImplementedError):
    """An Op or a Type lacks a method that is needed: `grad`, `perform`, `c_code` and so on."""


class InconsistencyError(BridgeError, ValueError):
    """A graph that no order of its nodes can compute, for instance one that destroys a value
    twice."""


class ContractError(BridgeError, AssertionError):
    """An Op or a Type does other than it declares; debug mode raises it."""


class CompileError(BridgeError, RuntimeError):
    """A compiler or linker refused, or is not there; the text has its message and the command."""


class BundleError(BridgeError, RuntimeError):
    """A program cannot be bundled; the text says what is in the way, and what to do."""


class GradientError(BridgeError, RuntimeError):
    """Autograd cannot record what a call does, or has not kept what a derivative needs."""


class RegistrationError(BridgeTypeError):
    """A registration, or what a registered function returned, is not as it must be."""


class DuplicateError(BridgeValueError, KeyError):
    """The same thing is registered twice."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


# What PyTorch and other code that is not ours raise where they refuse something, to be caught where
# a refusal is an answer. MemoryError, interrupts and StopIteration are none.
REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ExtensionWarning(UserWarning):
    """An installed extension could not be loaded."""
