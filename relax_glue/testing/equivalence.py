"""Whether two modules are the same function: both compiled for LLVM, run on the same inputs, compared.

Many pairs go into one module that is compiled once, since most of the time of a small compilation does not
depend on what is compiled, and equal kernels are shared. Nothing is fused there: fusion lets LLVM contract
a product and a sum, and then a rewrite that changed nothing but the borders of kernels would change bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.sym import Analyzer

from relax_glue.ir import Extent, extents
from relax_glue.passes import LiftBranches
from relax_glue.testing.case import Array, Case

Pass = Callable[[tvm.IRModule], tvm.IRModule]


class NotEquivalentError(AssertionError):
    """Two modules differ in signature or results, or one is ill-formed or does not compile."""


@dataclass(frozen=True)
class Pair:
    """A module, what became of it, and inputs to run both on.

    Attributes
    ----------
    before, after
        Modules with a Relax function `main`.
    inputs
        One array for each parameter.
    exact
        Whether results must agree bit for bit, signs of zeros included; one NaN is as good as another.
    payloads
        Whether the bits of NaNs must agree as well, as they do where data only moves.
    rtol
        What a result may deviate if not `exact`, relative to the largest entry of the right one.
    atol
        What it may deviate besides, where much cancels: then the largest entry says nothing of what was added.
    other_inputs
        Inputs of other sizes. What they give must be equal numbers if `exact`, but zeros may differ in sign: that
        hangs on the order of evaluation, which the first inputs were drawn not to show.
    """

    before: tvm.IRModule
    after: tvm.IRModule
    inputs: Sequence[Array]
    exact: bool = True
    payloads: bool = False
    rtol: float = 1e-4
    other_inputs: Sequence[Sequence[Array]] = ()
    atol: float = 0.0


def check_equivalent(
    before: tvm.IRModule,
    after: tvm.IRModule,
    inputs: Sequence[Array],
    *,
    exact: bool = True,
    payloads: bool = False,
    rtol: float = 1e-4,
    other_inputs: Sequence[Sequence[Array]] = (),
) -> None:
    """Check that two modules are well formed, have one signature, and answer the same.

    Parameters
    ----------
    before, after, inputs, exact, payloads, rtol, other_inputs
        See `Pair`.

    Raises
    ------
    NotEquivalentError
        If they are not; the message holds both modules.
    """
    check_many([Pair(before, after, inputs, exact, payloads, rtol, other_inputs)])


def check_many(pairs: Sequence[Pair]) -> None:
    """Check pairs as `check_equivalent` does one, in a single compilation.

    Raises
    ------
    NotEquivalentError
        For the first pair that is not equivalent.
    """
    for pair in pairs:
        check_signature(pair)
    if not pairs:
        return
    machine = _compile_together(pairs)
    for index, pair in enumerate(pairs):
        before, after = machine[f"before_{index}"], machine[f"after_{index}"]
        _check_run(pair, before, after)
        for inputs in pair.other_inputs:
            rtol = 0.0 if pair.exact else pair.rtol
            _check_run(replace(pair, inputs=inputs, exact=False, payloads=False, rtol=rtol), before, after)


def _check_run(pair: Pair, before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """Raise unless both functions answer the pair's inputs alike."""
    arguments = [tvm.runtime.tensor(array) for array in pair.inputs]
    right = before(*arguments)
    _check_result(pair, right, after(*arguments))


def check_pass(transform: Pass, *cases: Case, idempotent: bool = True) -> None:
    """Check a pass on drawn cases: it leaves its input alone, keeps the function, and is done after one run.

    Parameters
    ----------
    transform
        A `tvm.transform.Pass` or any function from module to module.
    cases
        As the `modules` strategy draws them.
    idempotent
        Whether a second run must change nothing.

    Raises
    ------
    NotEquivalentError
        If a case fails.
    """
    pairs = []
    for case in cases:
        snapshot = tvm_ffi.structural_hash(case.module, map_free_vars=True)
        text = case.module.script()
        after = transform(case.module)
        pair = Pair(case.module, after, case.inputs, payloads=case.only_moves, other_inputs=case.other_inputs)
        if tvm_ffi.structural_hash(case.module, map_free_vars=True) != snapshot:
            raise NotEquivalentError(f"the pass changed the module it was given, which was\n{text}")
        if idempotent and not tvm_ffi.structural_equal(transform(after), after):
            raise _failure(pair, f"a second run of the pass gives\n{transform(after).script()}")
        pairs.append(pair)
    check_many(pairs)


def evaluate(module: tvm.IRModule, inputs: Sequence[Array], function: str = "main") -> Any:
    """Run a function of a module on LLVM.

    Parameters
    ----------
    module
        What to compile.
    inputs
        One array for each parameter.
    function
        The name of the function.

    Returns
    -------
    A numpy array, or a tuple of such results where the function returns a tuple.
    """
    machine = relax.VirtualMachine(_compile(module), tvm.cpu())
    return _to_numpy(machine[function](*[tvm.runtime.tensor(array) for array in inputs]))


def _to_numpy(result: Any) -> Any:
    if isinstance(result, tvm.runtime.Tensor):
        return result.numpy()
    return tuple(_to_numpy(field) for field in result)


def _failure(pair: Pair, reason: str) -> NotEquivalentError:
    return NotEquivalentError(
        f"{reason}\n----- before -----\n{pair.before.script()}\n----- after -----\n{pair.after.script()}"
    )


def check_signature(pair: Pair) -> None:
    """Check that two modules are well formed, and take and return the same types.

    Raises
    ------
    NotEquivalentError
        If they are not or do not; a result's type may say more than before.
    """
    for name, module in (("before", pair.before), ("after", pair.after)):
        try:
            relax.analysis.well_formed(module)
        except Exception as error:
            raise _failure(pair, f"the module {name} is ill-formed: {error}") from error
    before, after = pair.before["main"], pair.after["main"]
    same = tvm_ffi.structural_equal(_signature(before), _signature(after), map_free_vars=True)
    if not same and not _refines(before, after):
        raise _failure(pair, f"the signature changes from {before.ty} to {after.ty}")


def _signature(function: relax.Function) -> relax.FuncType:
    return relax.FuncType([parameter.ty for parameter in function.params], function.ret_ty)


def _refines(before: relax.Function, after: relax.Function) -> bool:
    """Say whether only the result's type changes, and says the same or more: an extent that is known now."""
    given, now = ([parameter.ty for parameter in function.params] for function in (before, after))
    return tvm_ffi.structural_equal(given, now) and _says_as_much(before.ret_ty, after.ret_ty)


def _says_as_much(before: relax.Type, after: relax.Type) -> bool:
    """Say whether a type allows nothing that another does not, by proof where extents are symbolic."""
    if isinstance(before, relax.TupleType) and isinstance(after, relax.TupleType):
        return len(before.fields) == len(after.fields) and all(map(_says_as_much, before.fields, after.fields))
    if before.is_base_of(after):
        return True
    if not isinstance(before, relax.TensorType) or not isinstance(after, relax.TensorType):
        return False
    given, now = extents(before), extents(after)
    if before.dtype != after.dtype or given is None or now is None or len(given) != len(now):
        return False
    return all(map(_equal_extents, given, now))


def _equal_extents(a: Extent, b: Extent) -> bool:
    """Say whether extents are equal for symbols that are extents: TVM writes min(n, 1) - min(n, 0) as min(n, 1)."""
    analyzer = Analyzer()
    for symbol in relax.analysis.tir_vars_in_type(relax.ShapeType([a, b])):
        analyzer.bind(symbol, tvm.ir.Range(0, 1 << 31))
    return bool(analyzer.can_prove_equal(a, b))


def _compile(module: tvm.IRModule) -> relax.VMExecutable:
    """Compile for LLVM, in a third of the usual time: the kernels are tiny and run once.

    Most of the code of a small kernel checks the shapes of its arguments; the VM checks those of `main`, and
    well-formedness the rest.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    with tvm.transform.PassContext(opt_level=0, config={"tirx.disable_assert": True}):
        return tvm.compile(module, target, relax_pipeline=_lower)


@tvm.transform.module_pass(opt_level=0, name="LowerUnfused")
def _lower(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Lower each operator to a kernel of its own.

    As TVM's own `default_build` does, but without RewriteDataflowReshape: where a kernel has an empty result
    it puts a reshape to a shape with literal zeros, reads these as "copy", and leaves an undefined variable.
    """
    transform = relax.transform
    passes = [
        LiftBranches(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
    return tvm.transform.Sequential(passes)(module)


def _compile_together(pairs: Sequence[Pair]) -> relax.VirtualMachine:
    """Compile all modules as one.

    Raises
    ------
    NotEquivalentError
        If a module does not compile by itself either.
    """
    merged = tvm.IRModule()
    for index, pair in enumerate(pairs):
        for name, module in ((f"before_{index}", pair.before), (f"after_{index}", pair.after)):
            merged.update(tvm.IRModule(_renamed(module, name)))
    try:
        return relax.VirtualMachine(_compile(merged), tvm.cpu())
    except Exception as error:
        for pair in pairs:
            _compile_alone(pair)
        raise NotEquivalentError(f"these modules compile, but not together: {error}") from error


def _compile_alone(pair: Pair) -> None:
    for name, module in (("before", pair.before), ("after", pair.after)):
        try:
            _compile(module)
        except Exception as error:
            raise _failure(pair, f"the module {name} does not compile: {error}") from error


def _renamed(module: tvm.IRModule, main: str) -> dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc]:
    """Give every function of a module a name of its own: `main` becomes the name given."""
    names = {var.name_hint: f"{main}_{var.name_hint}" for var in module.get_global_vars()} | {"main": main}
    targets = {name: tvm.ir.GlobalVar(new) for name, new in names.items()}
    for var, function in module.functions_items():  # a call of what has no type cannot be normalised
        relax.expr._update_type(targets[var.name_hint], function.ty)
    renamer = _GlobalRenamer(targets)
    functions = {}
    for var, function in module.functions_items():
        target = targets[var.name_hint]
        if isinstance(function, relax.Function):
            # A pass keeps the variables it does not touch, and two functions must not share a symbolic one.
            function = relax.utils.copy_with_new_vars(function)
            function = renamer.visit_expr(function) if len(names) > 1 else function
        if function.attrs and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", target.name_hint)
        functions[target] = function
    return functions


@relax.expr_functor.mutator
class _GlobalRenamer(relax.PyExprMutator):
    """Replaces references to functions by name."""

    def __init__(self, targets: dict[str, tvm.ir.GlobalVar]):
        super().__init__()
        self._targets = targets

    def visit_global_var_(self, op: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """Return what stands for the function from now on."""
        return self._targets[op.name_hint]


def _check_result(pair: Pair, right: Any, result: Any) -> None:
    """Raise unless both results are nested alike and agree in every leaf."""
    expected, found = dict(_leaves(_to_numpy(right))), dict(_leaves(_to_numpy(result)))
    if list(expected) != list(found):
        raise _failure(pair, f"the result has the leaves {list(found)} instead of {list(expected)}")
    for place, array in expected.items():
        reason = difference(
            array, found[place], exact=pair.exact, payloads=pair.payloads, rtol=pair.rtol, atol=pair.atol
        )
        if reason:
            raise _failure(pair, f"result{place} of inputs {[array.shape for array in pair.inputs]}: {reason}")


def _leaves(result: Any, place: str = "") -> Iterator[tuple[str, Array]]:
    if not isinstance(result, tuple):
        yield place, result
        return
    for index, field in enumerate(result):
        yield from _leaves(field, f"{place}[{index}]")


def difference(
    expected: Array,
    found: Array,
    *,
    exact: bool = True,
    payloads: bool = False,
    rtol: float = 1e-4,
    atol: float = 0.0,
) -> str | None:
    """Say how one array differs from the right one.

    Parameters
    ----------
    expected, found
        The arrays.
    exact, payloads, rtol, atol
        See `Pair`.

    Returns
    -------
    None where they agree, else the shapes, or the first place and the values there.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    wrong = _wrong_bits(expected, found, payloads) if exact else _wrong_values(expected, found, rtol, atol)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(np.count_nonzero(wrong))
    return f"{count} of {wrong.size} entries differ; at {place} {found[place]!r} instead of {expected[place]!r}"


def _wrong_bits(expected: Array, found: Array, payloads: bool) -> Array:
    unsigned = f"u{expected.dtype.itemsize}"
    wrong = np.ascontiguousarray(expected).view(unsigned) != np.ascontiguousarray(found).view(unsigned)
    wrong = wrong.reshape(expected.shape)
    if expected.dtype.kind == "f" and not payloads:
        wrong &= ~(np.isnan(expected) & np.isnan(found))
    return wrong


def _wrong_values(expected: Array, found: Array, rtol: float, atol: float) -> Array:
    """Compare against the largest finite entry, as a sum of many products errs by."""
    wide = expected.astype("float64")
    largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    return ~np.isclose(found.astype("float64"), wide, rtol=0.0, atol=atol + rtol * largest, equal_nan=True)
