"""What TVM has no code for on a GPU, found out by lowering it.

A table of names would be wrong with the next TVM, and an operator may have GPU code for one shape and none for
another. So a call is lowered for the target, alone, which takes some ten milliseconds and no GPU compiler. It has no
GPU code where

- TVM runs it as a packed function: that is Python code over host memory (nonzero, unique);
- lowering or scheduling raises (reshape to a shape that is data);
- its kernel calls a packed function of the host (the sort in non-maximum suppression);
- its kernel has statements outside every thread: a loop nest that no schedule binds (get_valid_counts, roi_align).
  TVM 0.27 builds these without a word, and the host then writes through GPU addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.utils import copy_with_new_vars

from .outline import seen_outside
from .steps import variables

_THREAD = "thread_extent"
_CALL_PACKED = "tirx.tvm_call_packed"
_LEGALIZE = tvm.transform.Sequential(
    [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan(), relax.transform.LegalizeOps()]
)
_CHILDREN = ("seq", "body", "then_case", "else_case", "block", "init")


class GpuKernels:
    """Tells which calls TVM can run on a GPU; remembers the answers.

    Parameters
    ----------
    mod : tvm.IRModule
        Where the TIR functions are that calls name.
    target : tvm.target.Target
        The GPU.
    """

    def __init__(self, mod: tvm.IRModule, target: tvm.target.Target) -> None:
        self._mod = mod
        self._target = target
        self._known: dict[tvm_ffi.StructuralKey, str | None] = {}

    def missing(self, call: relax.Call) -> str | None:
        """Return why TVM cannot run a call of an operator on the GPU, or None if it can."""
        packed = _packed_name(call)
        if packed is not None:
            return f"TVM runs it as {packed}, which works in host memory"
        alone = self._alone(call)
        key = tvm_ffi.StructuralKey(alone)  # type: ignore[call-arg]  # the stub asks for the hash, too
        if key not in self._known:
            self._known[key] = self._lower(alone)
        return self._known[key]

    def _alone(self, call: relax.Call) -> tvm.IRModule:
        """Return a module whose only Relax function makes the call."""
        params = list(variables(call))
        result = relax.Var("result", call.ty)
        body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(result, call)])], result)
        relax.expr._update_type(body, call.ty)
        returned = seen_outside(call.ty, ())
        symbols = relax.analysis.free_symbolic_vars(relax.Function(params, body, returned, True))
        if symbols:
            params.append(relax.Var("symbols", relax.ShapeType(symbols)))
        function = relax.Function(params, body, returned, True)
        kernels = {var: self._mod[var] for var in relax.analysis.all_global_vars(call)}
        alone = copy_with_new_vars(function).with_attr("global_symbol", "alone")
        return tvm.IRModule({tvm.ir.GlobalVar("alone"): alone, **kernels})

    def _lower(self, alone: tvm.IRModule) -> str | None:
        try:
            with self._target:
                legal = _LEGALIZE(alone)
                why = _fault(legal, _calls_host)  # before scheduling, which takes a second for such kernels
                return why or _fault(relax.get_default_pipeline(self._target)(legal), _stores_on_host)
        except Exception as error:  # lowering raises whatever its checks do; each means that there is no code
            return f"TVM cannot lower it for {self._target.kind.name}: {_first_line(error)}"


def _packed_name(call: relax.Call) -> str | None:
    name = call.op.get_attr("FCallPacked") if isinstance(call.op, tvm.ir.Op) else None
    return None if name is None else str(name)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _is_host(function: tirx.PrimFunc) -> bool:
    return function.attrs is not None and "tirx.is_host_func" in function.attrs


def _fault(mod: tvm.IRModule, judge: Callable[[tirx.Stmt], str | None]) -> str | None:
    """Return what a judge of kernels says of the first that is at fault."""
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc) and not _is_host(function):
            why = judge(function.body)
            if why is not None:
                return f"the kernel {var.name_hint} {why}"
    return None


def _calls_host(statement: tirx.Stmt) -> str | None:
    """Say whether a kernel calls a packed function: that one runs on the host, a sort for example."""
    if isinstance(statement, tirx.Evaluate) and isinstance(statement.value, tvm.ir.Call):
        call = statement.value
        if getattr(call.op, "name", None) == _CALL_PACKED:
            return f"calls {call.args[0].value}, which works in host memory"
    return next(filter(None, map(_calls_host, _statements(statement))), None)


def _stores_on_host(statement: tirx.Stmt) -> str | None:
    """Say whether a kernel writes to a buffer outside every thread."""
    if isinstance(statement, tirx.BufferStore):
        return "has loops that no schedule binds to threads"
    if isinstance(statement, tirx.For) and statement.thread_binding is not None:
        return None
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key == _THREAD:
        return None
    return next(filter(None, map(_stores_on_host, _statements(statement))), None)


def _statements(statement: tirx.Stmt) -> Iterator[tirx.Stmt]:
    for name in _CHILDREN:
        child = getattr(statement, name, None)
        if child is None:
            continue
        yield from child if name == "seq" else (child,)
