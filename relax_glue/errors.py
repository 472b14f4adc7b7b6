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
    """An input shape, or a range of sizes, that the caller gives does not fit the model."""


class OffloadError(RelaxGlueError):
    """Full offload was required, and an operator has to stay outside."""


class SplitError(RelaxGlueError, ValueError):
    """A model has no post-processing to split off, or is nothing else."""


class CompilationError(RelaxGlueError, RuntimeError):
    """TVM cannot compile what it is given: an operator without a kernel, or one whose shape is not known."""


class RewriteError(RelaxGlueError, RuntimeError):
    """A rule is at fault: it changed a type, or two rules undo each other for ever."""


class ProviderError(RelaxGlueError, RuntimeError):
    """No usable TensorRT package is installed, or the one asked for is unknown or unusable."""


class ConversionError(RelaxGlueError, RuntimeError):
    """A region function cannot be made into a TensorRT network."""


class BuildError(RelaxGlueError, RuntimeError):
    """TensorRT could not build an engine of a network that it accepted."""


class PlanError(RelaxGlueError, RuntimeError):
    """A serialised engine or region is damaged, or was made for another TensorRT or another GPU."""


class DeviceError(RelaxGlueError, RuntimeError):
    """There is no NVIDIA GPU, the CUDA driver reports an error, or a tensor lies on the wrong device."""


class ExecutionError(RelaxGlueError, RuntimeError):
    """A compiled function, or an engine, cannot run with the tensors that it was called with."""


class EngineWarning(UserWarning):
    """Something about an engine went another way than asked for; the results are right all the same."""
