"""Values carried between the memory of the GPU and that of the host, inside a Relax function.

`call_dps_packed` allocates its result where the function that calls it works (`lowering` makes that host memory for the
functions of the host), so one packed function copies both ways.
"""

from __future__ import annotations

from tvm import relax, tirx

from ..errors import CompilationError
from ..tensorrt.transfer import COPY
from .outline import bind, shape_is_known, typed


def copied(value: relax.Var, bindings: list[relax.Binding]) -> relax.Expr:
    """Copy the tensors in a value to where the function works; what is no tensor stays as it is.

    Parameters
    ----------
    value : relax.Var
        A tensor, or a tuple, nested or not, of tensors and other values.
    bindings : list of relax.Binding
        Where the copies are added.

    Raises
    ------
    CompilationError
        A tensor has an unknown number of axes.
    """
    if isinstance(value.ty, relax.TensorType):
        return _copied_tensor(value, bindings)
    if not isinstance(value.ty, relax.TupleType):
        return value
    items = []
    for index in range(len(value.ty.fields)):
        item = bind(bindings, typed(relax.TupleGetItem(value, index)), f"{value.name}_{index}")
        items.append(copied(item, bindings))
    return typed(relax.Tuple(items))


def _copied_tensor(value: relax.Var, bindings: list[relax.Binding]) -> relax.Var:
    if value.ty.ndim < 0:
        raise CompilationError(
            f"{value.name} has an unknown number of axes, so it cannot be carried between the CPU and the GPU; "
            f"give it a shape with match_cast, or compile for 'llvm'"
        )
    if not shape_is_known(value.ty):
        extents = [tirx.Var(f"{value.name}_dim{axis}", "int64") for axis in range(value.ty.ndim)]
        known = relax.Var(f"{value.name}_known", relax.TensorType(extents, value.ty.dtype))
        bindings.append(relax.MatchCast(known, value, known.ty))
        value = known
    ty = relax.TensorType(value.ty.shape, value.ty.dtype)
    return bind(bindings, typed(relax.call_dps_packed(COPY, [value], out_ty=ty)), f"{value.name}_copy")
