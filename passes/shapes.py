"""Shape arithmetic: what is known of shapes is written into the calls, and shape tensors become constants.

Importers spell the shape of a dynamic model as a subgraph: shape_of, shape_to_tensor, take, concat,
tensor_to_shape, reshape. Once extents are known the whole of it is constant. A shape never goes into an engine.
(rules.md C06, C07, S44, R27.)
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tvm
from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value, checks_nothing, extents, is_static
from relax_glue.ir.operands import call_with
from relax_glue.rewrite import FOLD, Decline, Replacement, RewriteStats, RuleSet, rule
from relax_glue.validate import as_names

from .base import rule_pass
from .constants import fold_constants
from .symbols import BIND, until_symbols_are_bound

# Operators that take a shape as an operand.
SHAPE_TAKERS = (
    "relax.reshape",
    "relax.broadcast_to",
    "relax.full",
    "relax.zeros",
    "relax.ones",
    "relax.image.affine_grid",
    "relax.image.resize2d",
    "relax.image.resize3d",
    "relax.collapse_sum_to",
    "relax.shape_to_tensor",
)


def _known_shape(value: Value) -> relax.ShapeExpr | None:
    """Return a shape operand written out, where its type tells the extents."""
    if not isinstance(value.ty, relax.ShapeType) or value.ty.values is None:
        return None
    return relax.ShapeExpr(list(value.ty.values))


@rule("inline-shape", *SHAPE_TAKERS, equation="f(x, s) with s of known extents -> f(x, shape(...))", source="C06")
def inline_shape(node: Node, graph: Graph) -> Replacement | Decline:
    """Write the extents of a shape variable into the call."""
    known = {k: s for k, v in enumerate(node.inputs) if (s := _known_shape(v)) is not None}
    if not known:
        return Decline("no operand is a shape variable of known extents")
    kept = [v for k, v in enumerate(node.inputs) if k not in known]

    def make(*exprs: relax.Expr) -> relax.Expr:
        given = iter(exprs)
        return call_with(node.expr, [known[k] if k in known else next(given) for k in range(len(node.inputs))])

    return graph.emit(make, *kept)


@rule(
    "shape-to-tensor-constant",
    "relax.shape_to_tensor",
    equation="shape_to_tensor(shape(static)) -> constant int64",
    kind=FOLD,
    source="C06",
)
def shape_to_tensor_constant(node: Node, graph: Graph) -> Replacement | Decline:
    """A static shape as a tensor is a constant."""
    shape = node.expr.args[0].ty.values if not node.inputs else getattr(node.inputs[0].ty, "values", None)
    if shape is None or not all(isinstance(e, tvm.tirx.IntImm) for e in shape):
        return Decline("an extent is symbolic or unknown")
    return graph.constant(np.array([e.value for e in shape], dtype="int64"))


@rule(
    "tensor-to-shape-constant",
    "relax.tensor_to_shape",
    equation="tensor_to_shape(constant) -> shape(...)",
    source="C06; apache/tvm issue 20192",
)
def tensor_to_shape_constant(node: Node, graph: Graph) -> Replacement | Decline:
    """A constant tensor as a shape is a shape of known extents."""
    array = node.inputs[0].array
    if array is None:
        return Decline("the tensor is not constant")
    if array.ndim != 1 or np.any(array < 0):
        return Decline("the tensor is no list of extents")
    return graph.bind(relax.ShapeExpr([int(e) for e in array]))


@rule(
    "static-slice",
    "relax.dynamic_strided_slice",
    equation="dynamic_strided_slice(x, constants) -> strided_slice(x, ...)",
    source="S44",
)
def static_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """A dynamic slice with constant bounds is a slice."""
    x, *bounds = node.inputs
    arrays = [v.array for v in bounds]
    if any(a is None for a in arrays):
        return Decline("a bound is not constant")
    begin, end, stride = ([int(i) for i in a.ravel()] for a in arrays if a is not None)
    if not is_static(x.shape):
        return Decline("bounds are clamped to extents that are not static")
    axes = list(range(len(begin)))
    return graph.emit(lambda e: relax.op.strided_slice(e, axes, begin, end, stride), x)


@rule("match-cast-known", "match_cast", equation="match_cast(x, a type that x has) -> x", kind=FOLD, source="C06")
def match_cast_known(node: Node, graph: Graph) -> Replacement | Decline:
    """A cast to a type that the operand is known to have checks nothing."""
    return (
        node.inputs[0]
        if node.inputs and checks_nothing(node)
        else Decline("the operand's type is not known to be the target")
    )


# Every operator whose type follows from its operands; a call of a kernel or of a function states its type instead.
_TYPED = tuple(
    sorted(
        name
        for name in map(str, tvm.ir.Op.list_op_names())
        if name.startswith("relax.")
        and not name.startswith(("relax.call_", "relax.vm.", "relax.memory.", "relax.builtin."))
    )
)


SHAPE_IS_KNOWN = Decline("the shape is known")


@rule(
    "refine-type",
    *_TYPED,
    equation="f(x) of unknown shape -> f(x) of the shape that follows from x",
    source="C06",
)
def refine_type(node: Node, graph: Graph) -> Replacement | Decline:
    """Infer a type again when those of the operands have become known."""
    if node.shape_of(None) is not None or None not in _shapes(node.ty):
        return SHAPE_IS_KNOWN
    if not node.inputs or any(None in _shapes(v.ty) for v in node.inputs):
        return Decline("an operand's shape is not known")
    made = graph.rebuild(node, node.inputs)
    if None in _shapes(made.ty):
        graph.drop_dead(made.node)
        return Decline("it does not follow from the operands")
    return [Value(made.node, k) for k in range(len(made.ty.fields))] if isinstance(made.ty, relax.TupleType) else made


def _shapes(ty: relax.Type) -> list[tuple[Extent, ...] | None]:
    """Return the shapes of the tensors in a type, None where one is unknown."""
    if isinstance(ty, relax.TupleType):
        return [shape for item in ty.fields for shape in _shapes(item)]
    return [extents(ty)] if isinstance(ty, relax.TensorType) else []


RULES = RuleSet.of(
    inline_shape, shape_to_tensor_constant, tensor_to_shape_constant, static_slice, match_cast_known, refine_type
)


def FoldShapes(*, exclude: Iterable[str] = (), stats: RewriteStats | None = None) -> tvm.transform.Pass:
    """Write known extents into calls and fold shape arithmetic.

    Parameters
    ----------
    exclude : iterable of str
        Names of rules to leave out, or "bind-known-symbols".
    stats : RewriteStats, optional
        Where to count what the rules do.

    Raises
    ------
    UnknownNameError
        `exclude` names something else.
    """
    # shape arithmetic is constant arithmetic between the two ends
    rules = RULES + RuleSet.of(fold_constants(integers_only=True))
    left_out = as_names("exclude", exclude)
    fold = rule_pass("FoldShapes", rules, [name for name in left_out if name != BIND.name], stats)
    return fold if BIND.name in left_out else until_symbols_are_bound(fold)
