"""Parts of functions made into functions of the host, with the copies on both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count

import networkx as nx
import tvm
import tvm_ffi
from tvm import relax, tirx

from ..inline import inline
from ..ir import map_functions
from ..ir.rename import rename
from ..passes import ConvertToDataflow
from ..region_function import is_region
from .copies import copied
from .kernels import GpuKernels
from .outline import (
    Boundary,
    arguments,
    bind,
    boundary,
    make_function,
    parameters,
    seen_outside,
    shape_is_known,
    typed,
    without_dataflow,
)
from .placement import Judge, Kind, Missing, host_groups
from .steps import Step, dependencies, steps_of

HOST = "relax_glue.host"
"""The attribute of a function that runs on the host. Others call it as a packed function of its name."""


def place_on_host(mod: tvm.IRModule, target: tvm.target.Target, missing: Missing | None = None) -> tvm.IRModule:
    """Move what TVM cannot run on a GPU into functions of the host, and the tail behind it.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned or not; it is not changed. Regions that end up on the host are put back into operators.
    target : tvm.target.Target
        The GPU.
    missing : Callable, optional
        `missing(call)` says why there is no GPU code for a call of an operator, or returns None; by default the call is
        lowered for the target, to see.

    Returns
    -------
    mod : tvm.IRModule
        The same functions, with calls of functions with the attribute `HOST` in them; `mod` itself where all can run on
        the GPU.

    Raises
    ------
    CompilationError
        A tensor that has to be copied has an unknown number of axes.
    """
    judge = Judge(mod, missing or GpuKernels(mod, target).missing)
    placer = _Placer(mod, judge)
    placed = map_functions(mod, placer.function)
    if placed.same_as(mod):
        return mod
    for var, function in placer.added.items():
        placed.update_func(var, function)
    return _without_unused_regions(placed)


def host_functions(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """Return the functions of a module that run on the host."""
    return {var: f for var, f in mod.functions_items() if isinstance(f, relax.Function) and _is_host(f)}


def _is_host(function: relax.Function) -> bool:
    return function.attrs is not None and HOST in function.attrs


def _without_regions(mod: tvm.IRModule, function: relax.Function) -> relax.Function:
    """Put the operators of the regions that a function calls into it."""
    regions = {var: mod[var] for var in relax.analysis.all_global_vars(function) if is_region(mod[var])}
    if not regions:
        return function
    var = tvm.ir.GlobalVar(str(function.attrs["global_symbol"]))
    return inline(ConvertToDataflow()(tvm.IRModule({var: function, **regions})))[var.name_hint]


def _without_unused_regions(mod: tvm.IRModule) -> tvm.IRModule:
    callers = [f for _, f in mod.functions_items() if isinstance(f, relax.Function) and not is_region(f)]
    called = {var for function in callers for var in relax.analysis.all_global_vars(function)}
    kept = {var: f for var, f in mod.functions_items() if not is_region(f) or var in called}
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


class _Placer:
    """Places the steps of each function of a module; `added` are the functions of the host."""

    def __init__(self, mod: tvm.IRModule, judge: Judge) -> None:
        self.added: dict[tvm.ir.GlobalVar, relax.Function] = {}
        self._mod = mod
        self._judge = judge
        self._taken = {var.name_hint for var in mod.get_global_vars()}
        self._names: Iterator[str] = iter(())
        self._found = False

    def function(self, var: tvm.ir.GlobalVar, function: relax.Function) -> relax.Function:
        """Return a function with the calls of its parts on the host, or the function itself if it has none."""
        if _is_host(function) or not isinstance(function.body, relax.SeqExpr):
            return function
        if not self._judge.contents(function.body) & {Kind.HOST, Kind.SHAPE, Kind.FIXED}:
            return function
        self._names = (f"{var.name_hint}_host_{number}" for number in count())
        plain = without_dataflow(function)
        scope = {s for param in plain.params for s in relax.analysis.tir_vars_in_type(param.ty)}
        self._found = False
        body = self._sequence(plain.body, scope)
        if not self._found:
            return function
        result = plain.ret_ty
        if relax.analysis.type_base_check(result, body.ty) != relax.analysis.BaseCheckResult.PASS:
            result = seen_outside(body.ty, scope)  # a result has fewer rows than it was declared with
        made = relax.Function(plain.params, body, result, plain.is_pure, plain.attrs, plain.span)
        alone = ConvertToDataflow()(tvm.IRModule({var: made}))
        return alone[var]

    def _sequence(self, seq: relax.SeqExpr, scope: Collection[tirx.Var]) -> relax.SeqExpr:
        steps = steps_of(seq, scope)
        groups = host_groups(steps, self._judge)
        self._found = self._found or bool(groups)
        of_group = {step: number for number, group in enumerate(groups) for step in group}
        bindings: list[relax.Binding] = []
        renamed: dict[relax.Expr, relax.Expr] = {}
        known = set(scope)
        for unit in _in_order(steps, of_group):
            if unit[0] in of_group:
                others = [step for step in steps if of_group.get(step) != of_group[unit[0]]]
                border = boundary(unit, others, seq.body)
                if border.outputs or border.yielded:  # else it is dead
                    renamed.update(self._call_host(unit, border, bindings))
            else:
                bindings.append(self._on_gpu(unit[0].binding, known))
            known.update(s for step in unit for s in step.defines)
        made = relax.SeqExpr([relax.BindingBlock(bindings)] if bindings else [], seq.body)
        relax.expr._update_type(made, seq.ty)
        return rename(made, renamed)

    def _on_gpu(self, binding: relax.Binding, scope: Collection[tirx.Var]) -> relax.Binding:
        """Look for parts of the host inside the branches of a step of the GPU."""
        value = binding.value
        if not isinstance(value, relax.If) or self._judge.kind(value) is not Kind.FIXED:
            return binding
        branches = [self._sequence(branch, scope) for branch in (value.true_branch, value.false_branch)]
        made = relax.If(value.cond, *branches, value.span)
        relax.expr._update_type(made, value.ty)
        return relax.VarBinding(binding.var, made)

    def _call_host(
        self, members: Sequence[Step], border: Boundary, bindings: list[relax.Binding]
    ) -> dict[relax.Var, relax.Var]:
        """Make a function of the host, and call it; return the variables that other ones take the places of."""
        name = self._fresh_name()
        function = _without_regions(self._mod, _host_function(members, border, name))
        var = tvm.ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.added[var] = function
        inside = {s for step in members for s in step.defines}
        declared, lowered = _result_types(function)
        outputs = [_output_type(v.ty, declared[k], lowered[k]) for k, v in enumerate(border.outputs)]
        shape = [relax.ShapeType(ndim=len(border.yielded))] if border.yielded else []
        types = [_known_before(ty, inside) for ty in outputs] + shape
        call = relax.call_pure_packed(name, *arguments(border), ty_args=relax.TupleType(types))
        result = bind(bindings, typed(call), name)
        if border.yielded:
            symbols = bind(bindings, typed(relax.TupleGetItem(result, len(outputs))), f"{name}_symbols")
            self._cast(symbols, relax.ShapeType(list(border.yielded)), bindings)
        renamed = {}
        for index, (output, ty) in enumerate(zip(border.outputs, outputs, strict=True)):
            item = bind(bindings, typed(relax.TupleGetItem(result, index)), f"{output.name}_host")
            value = copied(self._cast(item, ty, bindings), bindings)
            if ty.same_as(output.ty):
                bindings.append(relax.VarBinding(output, value))
            else:
                renamed[output] = bind(bindings, value, output.name)
        return renamed

    @staticmethod
    def _cast(value: relax.Var, ty: relax.Type, bindings: list[relax.Binding]) -> relax.Var:
        """Tell the caller the extents of a value that comes from the host."""
        if tvm_ffi.structural_equal(value.ty, ty):
            return value
        cast = relax.Var(f"{value.name}_cast", ty)
        bindings.append(relax.MatchCast(cast, value, ty))
        return cast

    def _fresh_name(self) -> str:
        name = next(name for name in self._names if name not in self._taken)
        self._taken.add(name)
        return name


def _in_order(steps: Sequence[Step], of_group: dict[Step, int]) -> list[list[Step]]:
    """Return the groups, and each other step alone, so that producers come first and else the order is kept."""
    dag = dependencies(steps)
    units: dict[object, list[Step]] = {}
    for step in steps:
        units.setdefault(of_group.get(step, step), []).append(step)
    unit_of = {step: key for key, members in units.items() for step in members}
    condensed = nx.DiGraph()
    condensed.add_nodes_from(units)
    condensed.add_edges_from((unit_of[a], unit_of[b]) for a, b in dag.edges if unit_of[a] != unit_of[b])
    order = nx.lexicographical_topological_sort(condensed, key=lambda key: units[key][-1].position)
    return [units[key] for key in order]


def _host_function(members: Sequence[Step], border: Boundary, name: str) -> relax.Function:
    """Make the function: it copies what it is given, computes, and returns tensors of the host."""
    params = [relax.Var(param.name, param.ty) for param in parameters(border)]
    bindings: list[relax.Binding] = []
    for param, var in zip(params, border.inputs, strict=False):
        bindings.append(relax.VarBinding(var, copied(param, bindings)))
    bindings += [step.binding for step in members]
    fields: list[relax.Expr] = list(border.outputs)
    if border.yielded:
        fields.append(relax.ShapeExpr(list(border.yielded)))
    function = make_function(params, bindings, typed(relax.Tuple(fields)))
    return function.with_attrs({"global_symbol": name, HOST: 1})


def _known_before(ty: relax.Type, inside: Collection[tirx.Var]) -> relax.Type:
    """Return the type of an output as the caller knows it before it is told the extents."""
    return seen_outside(ty, set(relax.analysis.tir_vars_in_type(ty)) - set(inside))


def _result_types(function: relax.Function) -> tuple[list[relax.Type], list[relax.Type]]:
    """Return the types of the results of a host function, as declared, and as they are when TVM has lowered it.

    `all_class_non_max_suppression` is declared with a row for each class and box; what TVM makes of it returns the
    selected rows alone.
    """
    var = tvm.ir.GlobalVar("alone")
    lowered = relax.transform.LegalizeOps()(tvm.IRModule({var: function}))[var]
    return list(function.ret_ty.fields), list(lowered.ret_ty.fields)


def _output_type(ty: relax.Type, declared: relax.Type, lowered: relax.Type) -> relax.Type:
    """Return the type of an output as the caller may rely on it; `ty` itself where it says the truth."""
    if isinstance(ty, relax.TupleType):
        items = zip(ty.fields, declared.fields, lowered.fields, strict=True)
        fields = [_output_type(*item) for item in items]
        same = all(new.same_as(old) for new, old in zip(fields, ty.fields, strict=True))
        return ty if same else relax.TupleType(fields)
    if not isinstance(ty, relax.TensorType):
        return ty
    lost = shape_is_known(declared) and not shape_is_known(lowered)
    return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim) if lost or not shape_is_known(ty) else ty
