"""TIR calls that are a Relax operator in disguise become that operator.

TVM's ONNX importer writes Clip, Pad and Tile as `call_tir` of kernels that it generates (emit_te): a wall for every
operator-level pass, and the reason why PP-OCR is cut at every hard-swish. Whether a kernel is an operator's is not
guessed: the operator is legalized by TVM itself for the same operands, and the two kernels must be structurally
equal. What is equal there computes the same bits. (rules.md B16, B07, P10.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx, topi

from relax_glue.ir import Extent, Graph, Node, is_static, same
from relax_glue.rewrite import DEFAULT_SOUNDNESS, Decline, Replacement, RewriteStats, RuleSet, rule

from .base import rule_pass

Make = Callable[..., relax.Expr]

# The kernels of these operators carry their names, so one candidate is enough.
_BINARY = ("maximum", "minimum", "add", "subtract", "multiply", "divide", "power", "floor_divide", "floor_mod", "mod")


# Kernels that TVM's importer makes for pads by what stands at the border, and the modes of relax.nn.pad.
_BORDERS = {"mirror_pad": "reflect", "replicate_pad": "replicate"}


def _candidates(kernel: tirx.PrimFunc, name: str, node: Node) -> Iterator[Make]:
    """Yield makers of the calls whose kernel `kernel` may be."""
    if name in _BINARY and len(node.inputs) == 2:
        yield getattr(relax.op, name)
    shape, result = node.inputs[0].shape, node.shape_of(None)
    if shape is None or result is None:
        return
    if name == "tile" and len(shape) <= len(result):
        yield from _tiles(shape, result)
    if name == "pad" and len(shape) == len(result):
        yield from _pads(kernel, shape, result)
    if name in _BORDERS and len(shape) == len(result):
        yield from _border_pads(kernel, _BORDERS[name], shape, result)


def _tiles(shape: Sequence[Extent], result: Sequence[Extent]) -> Iterator[Make]:
    """Yield the tile that makes a result of a shape; a symbolic extent stays as it is."""
    lead = result[: len(result) - len(shape)]
    pairs = list(zip(shape, result[len(lead) :], strict=True))
    repeats = [*lead, *(1 if same(n, m) else _quotient(n, m) for n, m in pairs)]
    if is_static(repeats):
        yield lambda x: relax.op.tile(x, repeats)


def _quotient(n: Extent, m: Extent) -> int | None:
    return m // n if is_static((n, m)) and n and m % n == 0 else None


def _pads(kernel: tirx.PrimFunc, shape: Sequence[Extent], result: Sequence[Extent]) -> Iterator[Make]:
    """Yield the constant pad whose widths and value can be read from the kernel; a symbolic extent stays as it is."""
    stored = _stored(kernel.body)
    if not isinstance(stored, relax.Call) or len(stored.args) != 3:
        return  # no if_then_else(inside, operand[...], fill)
    read, fill = stored.args[1], stored.args[2]
    if not isinstance(read, tvm.ir.TensorLoad) or not isinstance(fill, (tirx.FloatImm, tirx.IntImm)):
        return
    widths = _widths(read.indices, shape, result)
    if widths is not None:
        yield lambda x: relax.op.nn.pad(x, widths, "constant", float(fill.value))


def _border_pads(kernel: tirx.PrimFunc, mode: str, shape: Sequence[Extent], result: Sequence[Extent]) -> Iterator[Make]:
    """Yield the pad that repeats or mirrors the border and whose widths can be read from the kernel."""
    read = _stored(kernel.body)
    if not isinstance(read, tvm.ir.TensorLoad):
        return
    widths = _widths([_inside(index) for index in read.indices], shape, result)
    if widths is not None:
        yield lambda x: relax.op.nn.pad(x, widths, mode)


def _inside(index: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return the index that is read off the border: the last of if_then_else(beyond, ..., i) and max(0, min(n, i))."""
    while True:
        if isinstance(index, relax.Call) and len(index.args) == 3:
            index = index.args[2]
        elif isinstance(index, (tirx.Max, tirx.Min)):
            index = index.b
        else:
            return index


def _widths(indices: Sequence[tirx.PrimExpr], shape: Sequence[Extent], result: Sequence[Extent]) -> list[int] | None:
    """Return the pads before and after each axis of a result that reads its operand at `indices`, or None."""
    if len(indices) != len(shape):
        return None
    widths: list[int] = []
    for index, n, m in zip(indices, shape, result, strict=True):
        grown = 0 if same(n, m) else m - n if is_static((n, m)) else None
        before = 0 if grown == 0 else _offset(index)
        if before is None or grown is None:
            return None
        widths += [before, grown - before]
    return widths


def _stored(statement: object) -> object:
    """Return what the innermost statement of a nest of loops and blocks stores, or None where it is no store."""
    while not isinstance(statement, tirx.BufferStore):
        inner = getattr(statement, "block", None)
        statement = inner if inner is not None else getattr(statement, "body", None)
        if statement is None:
            return None
    return statement.value


def _offset(index: tirx.PrimExpr) -> int | None:
    """Return k of an index `v - k`, or 0 of `v`."""
    if isinstance(index, relax.Var):
        return 0
    if isinstance(index, tirx.Sub) and isinstance(index.a, relax.Var) and isinstance(index.b, tirx.IntImm):
        return int(index.b.value)
    return None


def _kernel_of(make: Make, types: Sequence[relax.Type]) -> tirx.PrimFunc | None:
    """Return the kernel that TVM legalizes a call to, or None where it makes no kernel of it."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{k}", ty) for k, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(_as_imported(builder, builder.normalize(make(*params))))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.finalize())
    kernels = [f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]
    return kernels[0] if len(kernels) == 1 else None


def _as_imported(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Return a call, or what the importer computes in its place: it mirrors by another kernel than TVM itself."""
    if call.op.name != "relax.nn.pad" or str(call.attrs.pad_mode) != "reflect":
        return call
    widths = [int(w) for w in call.attrs.pad_width]
    return builder.call_te(topi.nn.mirror_pad, call.args[0], widths[::2], widths[1::2], "REFLECT")


def _bare(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel without attributes; its parameters stay, since b - a is not the kernel of a - b."""
    return tirx.PrimFunc(kernel.params, kernel.body, kernel.ret_type)


@rule(
    "call-tir-to-operator",
    "relax.call_tir",
    equation="call_tir(the kernel that TVM makes of f, x) -> f(x)",
    source="B16, B07, P10",
)
def call_tir_to_operator(node: Node, graph: Graph) -> Replacement | Decline:
    """Call the operator instead of the kernel, where TVM makes that very kernel of it."""
    callee = node.expr.args[0]
    functions = graph.place.module.functions if graph.place.module is not None else {}
    kernel = functions.get(callee) if isinstance(callee, tvm.ir.GlobalVar) else None
    if not isinstance(kernel, tirx.PrimFunc) or not node.inputs or isinstance(node.ty, relax.TupleType):
        return Decline("it is no call of a kernel with one result")
    if len(node.expr.args) != 2:
        return Decline("the kernel takes symbolic extents")
    name = re.sub(r"[_\d]*$", "", callee.name_hint)
    for make in _candidates(kernel, name, node):
        own = _kernel_of(make, [v.ty for v in node.inputs])
        if own is not None and tvm_ffi.structural_equal(_bare(own), _bare(kernel)):
            return graph.emit(make, *node.inputs)
    return Decline(f"{callee.name_hint} is the kernel of no operator known here")


RULES = RuleSet.of(call_tir_to_operator)


def RecognizeCallTir(
    *,
    exclude: Iterable[str] = (),
    stats: RewriteStats | None = None,
    soundness: Iterable[str] = DEFAULT_SOUNDNESS,
) -> tvm.transform.Pass:
    """Turn calls of the kernels of maximum, minimum, other binary operators, tile and pads back into operators.

    Parameters
    ----------
    exclude : iterable of str
        Names of rules to leave out.
    stats : RewriteStats, optional
        Where to count what the rule does.
    soundness : iterable of str
        The soundness classes of the rules to apply.

    Raises
    ------
    UnknownNameError
        `exclude` names a rule that the pass does not have, or `soundness` a class that there is not.

    Notes
    -----
    Private kernels that nothing calls afterwards are dropped from the module.
    """
    recognize = rule_pass("RecognizeCallTir", RULES, exclude, stats, soundness)

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not any(isinstance(f, tirx.PrimFunc) for _, f in mod.functions_items()):
            return mod
        return _without_unused_kernels(mod, recognize(mod))

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.RecognizeCallTir")


def _without_unused_kernels(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Drop the private kernels that `before` calls and `after` does not."""
    gone = _called(before) - _called(after)
    kept = {var: f for var, f in after.functions_items() if not (var.name_hint in gone and _is_private_kernel(f))}
    if len(kept) == len(list(after.functions_items())):
        return after
    return tvm.IRModule(kept, attrs=after.attrs, global_infos=after.global_infos)


def _called(mod: tvm.IRModule) -> set[str]:
    functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    return {v.name_hint for f in functions for v in relax.analysis.all_global_vars(f)}


def _is_private_kernel(func: object) -> bool:
    return isinstance(func, tirx.PrimFunc) and (func.attrs is None or "global_symbol" not in func.attrs)
