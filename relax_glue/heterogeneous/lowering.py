"""One executable of functions for the GPU and functions for the host.

`tvm.compile` lowers a module for one target. Here each kind is lowered by the pipeline of its target, and the two
meet where both are Relax functions of the virtual machine: a call of a host function is a call inside the same
executable, so whatever the machine can do (shapes that are data, branches) works on both sides, and
`export_library` writes one file. A machine for one GPU has the host as its second device (`relax.VirtualMachine` adds
it), which is where the functions of the host allocate.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..arguments import check_arguments
from ..passes import LiftBranches
from .constants import ConstantsOfHost
from .host import host_functions

_HOST_DEVICE = 1  # -1 means the last device, but TVM 0.27 compares it as an unsigned number first


def heterogeneous_pipeline(
    target: tvm.target.Target, host: tvm.target.Target | str | None = None
) -> tvm.transform.Pass:
    """Return the `relax_pipeline` with which `tvm.compile` takes modules with functions of the host, and any others.

    Parameters
    ----------
    target : tvm.target.Target
        What the other functions are for.
    host : tvm.target.Target or str, optional
        The CPU of the machine that runs the model; by default the host of `target`, else LLVM for this machine.
    """
    cpu = tvm.target.Target(host or target.host or "llvm")

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        hosts = host_functions(mod)
        rest = tvm.IRModule({v: f for v, f in mod.functions_items() if v not in hosts}, mod.attrs, mod.global_infos)
        with target:
            lowered = _pipeline(target)(LiftBranches()(rest))
        lowered = check_arguments(lowered, rest, _host_of(target, cpu))
        if not hosts:
            return lowered
        functions, kernels = _lower_host(tvm.IRModule(hosts), cpu, set(map(_name, lowered.get_global_vars())))
        return _joined(lowered, functions, kernels, cpu)

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.heterogeneous")


def _name(var: tvm.ir.GlobalVar) -> str:
    return str(var.name_hint)


def _host_of(target: tvm.target.Target, cpu: tvm.target.Target) -> tvm.target.Target:
    """Return what the host of a target runs code of."""
    return target if "cpu" in target.keys else target.host or cpu


def _pipeline(target: tvm.target.Target) -> tvm.transform.Pass:
    """Return what tvm.compile would lower with."""
    return relax.get_default_pipeline(target) if "gpu" in target.keys else relax.get_pipeline("default")


def _lower_host(
    mod: tvm.IRModule, cpu: tvm.target.Target, taken: set[str]
) -> tuple[dict[tvm.ir.GlobalVar, relax.Function], dict[str, tirx.PrimFunc]]:
    """Lower the functions of the host; return them and their kernels, by names that are not `taken`."""
    passes = [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(),
        ConstantsOfHost(),
        LiftBranches(),  # after the constants, which are work where a branch had none
        _pipeline(cpu),
    ]
    with cpu:
        lowered = tvm.transform.Sequential(passes)(mod)
    names: dict[tvm.ir.GlobalVar, str] = {}
    for var, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            names[var] = _fresh(f"host_{var.name_hint}", taken)
    rename = _OfHost(names)
    functions = {v: rename.visit_expr(f) for v, f in lowered.functions_items() if isinstance(f, relax.Function)}
    kernels = {name: lowered[var].with_attr("global_symbol", name) for var, name in names.items()}
    return functions, kernels


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def _joined(
    lowered: tvm.IRModule,
    functions: Mapping[tvm.ir.GlobalVar, relax.Function],
    kernels: Mapping[str, tirx.PrimFunc],
    cpu: tvm.target.Target,
) -> tvm.IRModule:
    """Put the functions of the host into the module, with their kernels as code."""
    callers = _OfDevice({_name(var): var for var in functions})
    joined = {
        var: callers.visit_expr(function) if isinstance(function, relax.Function) else function
        for var, function in lowered.functions_items()
    }
    result = tvm.IRModule({**joined, **functions}, attrs=lowered.attrs, global_infos=lowered.global_infos)
    if not kernels:
        return result
    code = tvm.tirx.build(tvm.IRModule(dict(kernels)), target=cpu)
    attrs = lowered.attrs or {}
    return result.with_attr("external_mods", [*attrs.get("external_mods", []), code])


@mutator
class _OfHost(PyExprMutator):
    """Calls the kernels by their new names, and allocates on the host."""

    def __init__(self, names: Mapping[tvm.ir.GlobalVar, str]) -> None:
        super().__init__()
        self._names = names

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Replace one call."""
        if isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.vm.alloc_storage":
            args = [call.args[0], relax.prim_value(_HOST_DEVICE), *call.args[2:]]
            return relax.Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)
        return self.visit_expr_post_order(call)

    def visit_global_var_(self, var: tvm.ir.GlobalVar) -> relax.Expr:
        """Replace the name of a kernel."""
        return relax.ExternFunc(self._names[var]) if var in self._names else var


@mutator
class _OfDevice(PyExprMutator):
    """Calls the functions of the host as what they are."""

    def __init__(self, functions: Mapping[str, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._functions = functions

    def visit_extern_func_(self, function: relax.ExternFunc) -> relax.Expr:
        """Replace the name of a function of the host."""
        return self._functions.get(str(function.global_symbol), function)
