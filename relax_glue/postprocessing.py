"""A detector cut in two: the network, and the post-processing behind it.

Post-processing begins where results depend on data in more than their values: at non-maximum suppression, and at
operators whose number of results is not known before they run (nonzero, slices with computed bounds). All that
follows from those is post-processing. Such an operator that leads to another layer, as the proposals of a two-stage
detector do, is in the middle of the network and begins nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import tvm
from tvm import relax, tirx

from .api import canonicalize
from .errors import SplitError, UnknownNameError
from .heterogeneous.outline import make_function, shape_is_known, typed, without_dataflow
from .heterogeneous.placement import WORTH_A_GPU
from .heterogeneous.steps import Step, dependencies, steps_of, variables
from .inline import inline
from .passes import ConvertToDataflow
from .validate import check_module

_SUPPRESSION = (
    "relax.vision.all_class_non_max_suppression",
    "relax.vision.non_max_suppression",
    "relax.vision.get_valid_counts",
)
_NUM_INPUT = "num_input"


class SplitModules(NamedTuple):
    """The two halves of a model; each is a module with one function, of the name that the model's has.

    Attributes
    ----------
    network : tvm.IRModule
        From the inputs to what the post-processing reads: one tensor, or a tuple.
    postprocessing : tvm.IRModule
        Takes the results of `network` in their order, then those inputs of the model that it reads itself, in theirs.
        It returns what the model returns.
    """

    network: tvm.IRModule
    postprocessing: tvm.IRModule


def split_postprocessing(mod: tvm.IRModule, function: str = "main") -> SplitModules:
    """Split a model into the network, which TensorRT takes, and the post-processing behind it.

    With no further inputs, `postprocessing(*network(image))` is what `mod(image)` is.

    Parameters
    ----------
    mod : tvm.IRModule
        As imported, or partitioned; it is not changed. It is brought to canonical form first, as by `canonicalize`.
    function : str
        The function to split.

    Returns
    -------
    halves : SplitModules
        Well-formed modules without regions, for `optimize` and `compile`.

    Raises
    ------
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    UnknownNameError
        It has no such function.
    SplitError
        There is no post-processing, or nothing else.
    """
    ready = canonicalize(inline(check_module(mod)))
    model = _function(ready, function)
    plain = without_dataflow(model)
    scope = {symbol for param in plain.params for symbol in relax.analysis.tir_vars_in_type(param.ty)}
    steps = steps_of(plain.body, scope)
    behind = _behind(steps, function)
    network = [step for step in steps if step not in behind]
    return _halves(ready, plain, network, [step for step in steps if step in behind], function)


def _function(mod: tvm.IRModule, name: str) -> relax.Function:
    found = {v.name_hint: f for v, f in mod.functions_items() if isinstance(f, relax.Function)}
    if name not in found:
        raise UnknownNameError(f"function={name!r}: the module has {', '.join(sorted(found))}")
    return found[name]


def _behind(steps: Sequence[Step], function: str) -> set[Step]:
    """Return the steps that are post-processing."""
    dag = dependencies(steps)
    begins = [step for step in steps if _begins(step)]
    layers = {step for step in steps if _has_layers(step.value)}
    last = [step for step in begins if step not in layers and layers.isdisjoint(nx.descendants(dag, step))]
    if not last:
        why = f"{begins[0].var.name} leads to further layers" if begins else "no suppression, no shape that is data"
        raise SplitError(f"{function} has no post-processing to split off ({why}); compile it as it is")
    behind = set(last).union(*(nx.descendants(dag, step) for step in last))
    for step in reversed(steps):
        if not step.reads and dag.succ[step] and behind.issuperset(dag.succ[step]):
            behind.add(step)  # a constant
    return behind


def _begins(step: Step) -> bool:
    """Return whether post-processing begins with a step, wherever it stands."""
    return bool(step.defines) or any(map(_depends_on_data, _calls(step.value)))


def _depends_on_data(call: relax.Call) -> bool:
    if getattr(call.op, "name", None) in _SUPPRESSION:
        return True
    return isinstance(call.ty, relax.TensorType) and not shape_is_known(call.ty)


def _has_layers(value: relax.Expr) -> bool:
    return any(str(getattr(call.op, "name", "")).startswith(WORTH_A_GPU) for call in _calls(value))


def _calls(value: relax.Expr) -> list[relax.Call]:
    """Return the calls in what a step computes: itself, or those in its branches."""
    found: list[relax.Call] = []
    relax.analysis.post_order_visit(value, lambda e: found.append(e) if isinstance(e, relax.Call) else None)
    return found


def _halves(
    mod: tvm.IRModule, model: relax.Function, network: Sequence[Step], behind: Sequence[Step], name: str
) -> SplitModules:
    read = dict.fromkeys(var for step in behind for var in step.reads)
    read.update((var, None) for var in variables(model.body.body))
    crossing = [step.var for step in network if step.var in read]
    if not crossing:
        raise SplitError(f"all of {name} is post-processing; compile it as it is")
    needed = {var for step in network for var in step.reads}
    inputs = [param for param in model.params if param in needed]
    extra = [param for param in model.params if param in read]
    symbols = _undefined_symbols(behind, [*crossing, *extra])
    results = [*crossing, *([relax.ShapeExpr(symbols)] if symbols else [])]
    result = results[0] if len(results) == 1 else typed(relax.Tuple(results))
    given = [*crossing, *([relax.Var("symbols", relax.ShapeType(symbols))] if symbols else [])]
    first = _half(model, inputs, network, result)
    second = _half(model, [*given, *extra], behind, model.body.body)
    return SplitModules(_module(mod, first, name), _module(mod, second, name))


def _undefined_symbols(steps: Sequence[Step], params: Sequence[relax.Var]) -> list[tirx.Var]:
    """Return the symbols that steps need and neither they nor the types of their parameters define."""
    defined = {symbol for step in steps for symbol in step.defines}
    defined.update(s for param in params for s in relax.analysis.definable_tir_vars_in_type(param.ty))
    needed = dict.fromkeys(symbol for step in steps for symbol in step.needs)
    needed.update((s, None) for param in params for s in relax.analysis.tir_vars_in_type(param.ty))
    return [symbol for symbol in needed if symbol not in defined]


def _half(
    model: relax.Function, params: Sequence[relax.Var], steps: Sequence[Step], result: relax.Expr
) -> relax.Function:
    """Make a function of steps of the model, with the model's attributes."""
    made = make_function(params, [step.binding for step in steps], result, is_pure=model.is_pure)
    attrs = dict(model.attrs.items()) if model.attrs is not None else {}
    if _NUM_INPUT in attrs:  # the others are weights
        weights = set(model.params[int(attrs[_NUM_INPUT]) :])
        attrs[_NUM_INPUT] = sum(param not in weights for param in params)
    return made.with_attrs(attrs) if attrs else made


def _module(mod: tvm.IRModule, function: relax.Function, name: str) -> tvm.IRModule:
    """Return a module of a function and what it calls."""
    found: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    waiting = [function]
    while waiting:
        for var in relax.analysis.all_global_vars(waiting.pop()):
            if var not in found:
                found[var] = mod[var]
                waiting += [mod[var]] if isinstance(mod[var], relax.Function) else []
    var = tvm.ir.GlobalVar(name)
    return ConvertToDataflow()(tvm.IRModule({var: function, **found}, global_infos=mod.global_infos))
