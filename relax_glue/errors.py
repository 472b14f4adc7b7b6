"""What relax_glue raises: one exception type for each kind of bad input.

Every message names the operator or value at fault, its place in the model, and the way out.
"""


class RelaxGlueError(Exception):
    """The base of every error that relax_glue raises on purpose."""


class InvalidModuleError(RelaxGlueError, ValueError):
    """The value given is no IRModule, holds no Relax function, or is ill-formed."""


class UnknownNameError(RelaxGlueError, ValueError):
    """An option names a pass, rule, operator or binding that does not exist."""


class ModelImportError(RelaxGlueError, ValueError):
    """A model file or exported program cannot be brought in."""


class InputShapeError(RelaxGlueError, ValueError):
    """An input shape given by the caller does not fit the model."""


class OffloadError(RelaxGlueError):
    """Full offload was required, and an operator has to stay outside."""


class RewriteError(RelaxGlueError, RuntimeError):
    """A rule is at fault: it changed a type, or two rules undo each other for ever."""


class ProviderError(RelaxGlueError, RuntimeError):
    """No usable TensorRT package is installed, or the one asked for is unknown or unusable."""


class ConversionError(RelaxGlueError, RuntimeError):
    """A region function cannot be made into a TensorRT network."""
