"""Region functions become calls into a module that carries their engines.

Two ways lead here. `Codegen()` is a pass for modules that this package has partitioned: it can put back a
region of which no engine can be had. And `relax.ext.tensorrt` is what TVM's own `RunCodegen` looks for; with it
registered, a user's FuseOpsByPattern, MergeCompositeFunctions and RunCodegen work on the stock wheel. The names
of the user's patterns mean nothing here: the operators inside the composites are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..errors import BuildError, ConversionError, EngineWarning, OffloadError, ProviderError, UnknownNameError
from ..region_function import is_region
from .artifact import Artifact, load_region, save_region
from .engine import obtain_plan
from .host import host_module
from .options import BuildOptions
from .plain import plain_function, rebuild, tensor_types
from .profiles import read_profiles, with_bounds
from .provider import installed

EXTERNAL = "relax.ext.tensorrt"
ENABLED = "relax.is_tensorrt_runtime_enabled"


def Codegen(
    options: BuildOptions | None = None, *, require: bool = False, host: tvm.target.Target | str = "llvm"
) -> tvm.transform.Pass:
    """Return the pass that replaces the region functions of a module (Codegen = "tensorrt") by engines.

    Parameters
    ----------
    options : BuildOptions, optional
        How engines are built and run.
    require : bool
        Raise when a region cannot become an engine; else it goes back to TVM with a warning.
    host : tvm.target.Target or str
        The CPU of the machine that runs the model.

    Raises
    ------
    OffloadError
        When the pass runs, with `require`: the region, and why it has no engine.
    UnknownNameError
        When the pass runs: the options give ranges for variables that the module does not have.
    """
    chosen = BuildOptions.of(options)

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        regions = {gv: function for gv, function in mod.functions_items() if is_region(function)}
        relax_functions = [function for function in mod.functions.values() if isinstance(function, relax.Function)]
        _check_names(chosen, relax_functions)
        if not regions:
            return mod
        artifacts: dict[tvm.ir.GlobalVar, Artifact] = {}
        refused: dict[tvm.ir.GlobalVar, relax.Function] = {}
        for gv, function in regions.items():
            callers = [each for each in relax_functions if gv in relax.analysis.all_global_vars(each)]
            named = with_bounds(function, callers).with_attr("global_symbol", gv.name_hint)
            try:
                artifacts[gv] = make_artifact(named, chosen)
            except (BuildError, ConversionError, ProviderError) as error:
                if require:
                    raise OffloadError(f"{gv.name_hint} has to be a TensorRT engine, and cannot: {error}") from error
                warnings.warn(f"{gv.name_hint} stays with TVM: {error}", EngineWarning, stacklevel=2)
                refused[gv] = function
        return _lower(mod, artifacts, refused, host)

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.tensorrt.Codegen")


def _check_names(options: BuildOptions, functions: Iterable[relax.Function]) -> None:
    """See that every range is that of a variable of these functions."""
    wanted = {name for profile in read_profiles(options.profiles) for name in profile.by_name}
    if not wanted:
        return
    known = {str(var.name) for function in functions for var in relax.analysis.defined_symbolic_vars(function)}
    unknown = sorted(wanted - known)
    if unknown:
        there = f"there are {', '.join(sorted(known))}" if known else "its shapes are static"
        raise UnknownNameError(
            f"profiles gives ranges for {', '.join(unknown)}, which the module does not have; {there}"
        )


def make_artifact(function: relax.Function, options: BuildOptions) -> Artifact:
    """Return what a model carries for a region.

    Parameters
    ----------
    function : relax.Function
        The region function.
    options : BuildOptions
        With build="lazy", no TensorRT is needed here.

    Raises
    ------
    ConversionError
        When the region cannot be a network, or cannot be written down.
    BuildError
        When TensorRT builds no engine of it, or the range of a symbolic extent is not known.
    ProviderError
        When there is no TensorRT, and build="now".
    """
    saved = save_region(function, read_profiles(options.profiles))
    plan = None
    if options.build == "now":
        plan = obtain_plan(saved, options, function)
    else:
        _check_readable(function, saved.data)
    kept = saved.data if plan is None or options.keep_region else None
    carried = replace(options, progress=None)
    return Artifact(saved.symbol, saved.inputs, saved.outputs, carried, kept, plan, saved.shapes, saved.profiles)


def external(functions: Sequence[relax.Function], options: Mapping[str, Any], _names: Any) -> list[Any]:
    """Be `relax.ext.tensorrt`: what RunCodegen calls with all region functions of a module.

    Parameters
    ----------
    functions : Sequence[relax.Function]
        The regions; the attribute global_symbol is the name by which each is called.
    options : Mapping[str, Any]
        RunCodegen's target options: the fields of `BuildOptions`.

    Returns
    -------
    list[tvm.runtime.Module]
        One module that holds them all.
    """
    chosen = BuildOptions.of(options or {})
    _check_names(chosen, functions)
    made: dict[str, Artifact] = {}
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        for param in function.params:
            if not isinstance(param.ty, relax.TensorType | relax.ShapeType):
                raise ConversionError(
                    f"parameter {param.name} of {symbol} is a {param.ty}: RunCodegen passes on tensors and shapes "
                    f"only; use relax_glue.tensorrt.Codegen, or split the tuple before the region"
                )
        made[symbol] = make_artifact(function, chosen)
    return [host_module(list(made.items()))]


def register_codegen(*, override: bool = False) -> bool:
    """Make this package TVM's TensorRT backend.

    Parameters
    ----------
    override : bool
        Take the place of the C++ backend of a TVM that was built with TensorRT; without it, that one is left.

    Returns
    -------
    bool
        Whether this package is the backend now.
    """
    present = tvm.get_global_func(EXTERNAL, allow_missing=True)
    if present is not None and not override:
        return False
    tvm.register_global_func(EXTERNAL, external, override=True)
    tvm.register_global_func(ENABLED, lambda: bool(installed()), override=True)
    return True


def _check_readable(function: relax.Function, data: bytes) -> None:
    """See that a region can be read back: where it is built, nobody can help it any more."""
    written = plain_function(function).without_attr("global_symbol")
    if not tvm_ffi.structural_equal(load_region(data).without_attr("global_symbol"), written):
        raise ConversionError(
            "TVMScript does not bring this region back as it was, so it cannot be built later; use build='now'"
        )


def _lower(
    mod: tvm.IRModule,
    artifacts: dict[tvm.ir.GlobalVar, Artifact],
    refused: dict[tvm.ir.GlobalVar, relax.Function],
    host: tvm.target.Target | str,
) -> tvm.IRModule:
    """Put calls to the host functions, and the bodies of refused regions, where regions were called."""
    plain = {gv: plain_function(function) for gv, function in refused.items()}
    caller = RegionCaller(mod, {gv: gv.name_hint for gv in artifacts})
    lowered = {}
    for gv, function in mod.functions_items():
        if gv in artifacts or gv in refused:
            continue
        if isinstance(function, relax.Function):
            function = caller.visit_expr(function.inline_functions(plain) if plain else function)
        lowered[gv] = function
    result = tvm.IRModule(lowered, attrs=mod.attrs, global_infos=mod.global_infos)
    if not artifacts:
        return result
    module = host_module([(gv.name_hint, artifact) for gv, artifact in artifacts.items()], host)
    attrs = mod.attrs or {}
    return result.with_attr("external_mods", [*attrs.get("external_mods", []), module])


@mutator
class RegionCaller(PyExprMutator):
    """Turns `region(a, (b, c))` into `call_dps_packed("symbol", (a, b, c))`.

    Parameters
    ----------
    mod : tvm.IRModule
        The module with the callers.
    symbols : Mapping[tvm.ir.GlobalVar, str]
        For each region, the name of the packed function to call.
    """

    def __init__(self, mod: tvm.IRModule, symbols: Mapping[tvm.ir.GlobalVar, str]) -> None:
        super().__init__(mod)
        self._symbols = symbols

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Replace a call of a region."""
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, tvm.ir.GlobalVar) or call.op not in self._symbols:
            return call
        arguments = [leaf for arg in call.args for leaf in self._leaves(arg)]
        types = tensor_types(call.ty)
        packed = relax.Call(
            tvm.ir.Op.get("relax.call_dps_packed"),
            [relax.ExternFunc(self._symbols[call.op]), relax.Tuple(arguments)],
            None,
            [types[0] if isinstance(call.ty, relax.TensorType) else relax.TupleType(types)],
        )
        if not isinstance(call.ty, relax.TupleType) or len(types) == len(call.ty.fields):
            return packed
        whole = self.builder_.emit(packed)
        items = iter([relax.TupleGetItem(whole, index) for index in range(len(types))])
        return rebuild(call.ty, items)

    def _leaves(self, arg: relax.Expr) -> list[relax.Expr]:
        if isinstance(arg, relax.Tuple):
            return [leaf for item in arg.fields for leaf in self._leaves(item)]
        if isinstance(arg.ty, relax.TupleType):
            count = len(arg.ty.fields)
            return [leaf for i in range(count) for leaf in self._leaves(relax.TupleGetItem(arg, i))]
        return [arg]
