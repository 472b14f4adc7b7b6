"""The public functions: optimize, canonicalize, partition, explain, compile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from .errors import CompilationError, UnknownNameError
from .heterogeneous import heterogeneous_pipeline, place_on_host
from .inline import inline
from .lowering import lowering_context
from .partition import PartitionOptions, Predicate, partition_with_report
from .pipeline import check_rules, left_out, pipeline_passes
from .region_function import region_functions
from .report import Report
from .rewrite import DEFAULT_SOUNDNESS, RewriteStats, Rule, check_soundness
from .rule_report import rule_reports
from .trace import RewriteLog
from .transform import Transform
from .validate import as_names, check_module

if TYPE_CHECKING:
    from .tensorrt import BuildOptions


def canonicalize(
    mod: tvm.IRModule,
    *,
    disable: Collection[str] = (),
    enable: Collection[str] = (),
    soundness: Collection[str] = DEFAULT_SOUNDNESS,
    stats: RewriteStats | None = None,
) -> tvm.IRModule:
    """Bring the glue of a module to its canonical form; nothing is offloaded.

    Parameters
    ----------
    mod : tvm.IRModule
        A well-formed module with at least one Relax function; it is not changed. Region functions in it stay.
    disable : collection of str
        Passes ("CanonicalizeSplit") and rules ("slice-of-concat") to leave out.
    enable : collection of str
        Passes to run that are off by default: "ConvertLayout" and "SinkPermuteDims", which make channels-last models
        channels-first; TensorRT chooses layouts itself, and on an H200 they gained nothing.
    soundness : collection of str
        Which rules may fire: "exact" ones keep every bit; "float_reassoc" ones may change the last bits of float
        arithmetic and the sign of a zero that it gives; "nan_sensitive" ones, which are off by default, may change what
        becomes of NaN, infinities and signed zeros.
    stats : RewriteStats, optional
        Where to count what each rule tried, did and declined.

    Returns
    -------
    mod : tvm.IRModule
        The same functions with the same parameters, result types and order of results.

    Raises
    ------
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    UnknownNameError
        `disable` names neither a pass nor a rule, or `enable` no pass that is off by default.
    """
    return _canonicalize(check_module(mod), pipeline_passes(disable, soundness, stats, enable))


def _canonicalize(mod: tvm.IRModule, steps: list[tvm.transform.Pass]) -> tvm.IRModule:
    return tvm.transform.Sequential(steps, name="relax_glue.canonicalize")(mod)


def partition(
    mod: tvm.IRModule,
    *,
    exclude_ops: Collection[str] = (),
    exclude_names: Collection[str] = (),
    exclude: Predicate | None = None,
    min_region_ops: int = 1,
    require_full_offload: bool = False,
) -> tvm.IRModule:
    """Move what TensorRT can express into region functions, in as few regions as there can be.

    Parameters
    ----------
    mod : tvm.IRModule
        A well-formed module; it is not changed. Regions that are in it already stay, so partitioning a partitioned
        module changes nothing.
    exclude_ops : collection of str
        Operators to keep with TVM, such as "nn.softmax".
    exclude_names : collection of str
        Bindings to keep with TVM, by the names of their variables.
    exclude : Callable, optional
        `exclude(call, name)` returns True for a call to keep with TVM.
    min_region_ops : int
        How many operators that compute a region needs, unless it is all there is.
    require_full_offload : bool
        Raise when an operator has to stay outside.

    Returns
    -------
    mod : tvm.IRModule
        With region functions (attribute Codegen = "tensorrt") that the original functions call.

    Raises
    ------
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    UnknownNameError
        An option names an operator or a binding that does not exist.
    OffloadError
        Full offload was required and an operator has to stay outside.
    """
    options = PartitionOptions(exclude_ops, exclude_names, exclude, min_region_ops, require_full_offload)
    return partition_with_report(check_module(mod), options)[0]


def optimize(
    mod: tvm.IRModule,
    *,
    disable: Collection[str] = (),
    enable: Collection[str] = (),
    soundness: Collection[str] = DEFAULT_SOUNDNESS,
    stats: RewriteStats | None = None,
    **partition_options: Any,
) -> tvm.IRModule:
    """Do the whole of it: canonical form, then the partition.

    Parameters
    ----------
    mod : tvm.IRModule
        A well-formed module; it is not changed.
    disable, enable, soundness, stats
        As in `canonicalize`.
    **partition_options
        As in `partition`. Names of bindings are those of `mod`; a binding that a rule takes away cannot be excluded.

    Returns
    -------
    mod : tvm.IRModule
        Ready for `compile`, or for `RunCodegen` of a TVM that has TensorRT built in.

    Raises
    ------
    InvalidModuleError, UnknownNameError, OffloadError
        As in `canonicalize` and `partition`.
    """
    options = PartitionOptions.of(partition_options)
    steps = pipeline_passes(disable, soundness, stats, enable)
    return partition_with_report(_canonicalize(check_module(mod), steps), options)[0]


def explain(
    mod: tvm.IRModule,
    *,
    disable: Collection[str] = (),
    enable: Collection[str] = (),
    soundness: Collection[str] = DEFAULT_SOUNDNESS,
    rules: bool | str | Collection[str] = False,
    **partition_options: Any,
) -> Report:
    """Tell which regions `optimize` makes of a module, what stays outside them, and why.

    Parameters
    ----------
    mod : tvm.IRModule
        A module as imported, or one that is partitioned already; it is not changed.
    disable, enable, soundness, **partition_options
        As in `optimize`; require_full_offload is ignored, since the report says what stays outside.
    rules : bool, str or collection of str
        Tell too which rules fired where, and why they did not elsewhere: True for all rules, or the names of some
        ("slice-of-concat") or of their passes ("CanonicalizeSplit").

    Returns
    -------
    report : Report
        `.regions`, `.outside` (each with `.op`, `.name`, `.reason`, `.hint`), `.rules` where they are asked for (each
        with `.verdict`, `.firings`, `.declined`), `str(report)`, `.to_json()`.

    Raises
    ------
    InvalidModuleError, UnknownNameError
        As in `canonicalize` and `partition`; or `rules` names neither a rule nor a pass made of rules.
    """
    options = PartitionOptions.of({**partition_options, "require_full_offload": False})
    disable, enable = as_names("disable", disable), as_names("enable", enable)  # read twice, which an iterator is not
    soundness = check_soundness(soundness)
    asked = check_rules(rules)
    log = RewriteLog(r.name for family in asked.values() for r in family) if asked else None
    steps = pipeline_passes(disable, soundness, RewriteStats(log=log), enable)
    partitioned = bool(region_functions(check_module(mod)))
    report = partition_with_report(mod if partitioned else _canonicalize(mod, steps), options)[1]
    if log is not None:
        report.rules = rule_reports(log, asked, _left_out(asked, disable, soundness, enable, partitioned))
    return report


def _left_out(
    asked: Mapping[str, Sequence[Rule | Transform]],
    disable: Collection[str],
    soundness: Collection[str],
    enable: Collection[str],
    partitioned: bool,
) -> dict[str, str]:
    """Return the rules that took no part, and why: all of them where the module was partitioned before."""
    if partitioned:
        return {r.name: "the module is partitioned already" for family in asked.values() for r in family}
    return left_out(disable, soundness, enable)


def compile(
    mod: tvm.IRModule,
    target: tvm.target.Target | str | None = None,
    *,
    build: BuildOptions | None = None,
    require_engines: bool = False,
) -> relax.VMExecutable:
    """Compile a module for the Relax VM: with TensorRT where there is a GPU for it, else with TVM alone.

    Parameters
    ----------
    mod : tvm.IRModule
        As imported, or partitioned by `optimize`; it is not changed. One without regions is optimised first.
    target : tvm.target.Target or str, optional
        What TVM compiles for; by default "cuda" where TensorRT can run, else "llvm". For "cuda" each region becomes an
        engine, and what TVM has no GPU code for, such as non-maximum suppression, runs on the CPU with the tail behind
        it; tensors of the GPU go in and come out all the same. For a CPU the regions are put back and TVM compiles
        everything.
    build : relax_glue.tensorrt.BuildOptions, optional
        How engines are built and run; with `BuildOptions(build="lazy")` a machine without a GPU can compile for one
        that has it.
    require_engines : bool
        Raise when a region cannot become an engine; else it goes back to TVM with a warning.

    Returns
    -------
    executable : tvm.relax.VMExecutable
        For `tvm.relax.VirtualMachine` and `export_library`.

    Raises
    ------
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    UnknownNameError
        TVM has no such target.
    OffloadError
        With `require_engines`: a region has no engine.
    CompilationError
        TVM cannot compile the operators that are its own.
    """
    from . import tensorrt  # it registers functions with TVM

    codegen = tensorrt.Codegen(build, require=require_engines)
    ready = mod if region_functions(check_module(mod)) else optimize(mod)
    chosen = _target(target or ("cuda" if tensorrt.can_run() else "llvm"))
    if chosen.kind.name != "cuda":
        return _compile(inline(ready), chosen)
    engines = codegen(place_on_host(ready, chosen))
    return _compile(place_on_host(engines, chosen), chosen)  # a region without an engine has come back since


def _target(target: tvm.target.Target | str) -> tvm.target.Target:
    try:
        return tvm.target.Target(target)
    except (ValueError, TypeError, tvm.error.InternalError) as error:
        raise UnknownNameError(f"target={target!r} is none that TVM has: {error}; try 'llvm' or 'cuda'") from error


def _compile(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    try:
        with lowering_context(mod):
            return tvm.compile(mod, target, relax_pipeline=heterogeneous_pipeline(target))
    except Exception as error:  # TVM's lowering raises whatever its checks do: some Python errors, most from C++
        reason = str(error).strip() or type(error).__name__
        raise CompilationError(f"TVM cannot compile the module for {target.kind.name}: {reason}") from error
