"""Ranges of free extents: what the caller says, checked, and put into the module.

They become two attributes of `main` that TVM itself reads when it plans memory, `tir_var_lower_bound` and
`tir_var_upper_bound`; TensorRT's optimisation profiles take them over. A size outside is refused when the function is
called: by what `relax_glue.compile` adds to it (`relax_glue.arguments`), and, whoever compiles it, by a check at its
entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from relax_glue.errors import InputShapeError
from relax_glue.ir.bounds import LOWER_BOUND, UPPER_BOUND, attribute_bounds
from relax_glue.ir.checks import MAX_EXTENT

from .checks import EntryChecks, symbols_of

Range = Sequence["int | None"]
Ranges = Mapping[str, Range]
LEAST = 1  # an extent of 0 is no size that a model is called with


def checked_ranges(given: Ranges | None, names: Sequence[str]) -> dict[str, tuple[int, int | None]]:
    """Bring the caller's ranges to one form.

    Parameters
    ----------
    given : mapping of str to (int or None, int or None), or None
        The least and the largest value of a free extent by its name, both included; None leaves an end open.
    names : sequence of str
        The names of the free extents there are.

    Returns
    -------
    dict of str to (int, int or None)

    Raises
    ------
    InputShapeError
        An unknown name, or a range that is none.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputShapeError(f"ranges must map the name of a free extent to (least, largest), not be {given!r}")
    unknown = [name for name in given if name not in names]
    if unknown:
        there = f"the free extents are {', '.join(names)}" if names else "every extent is fixed"
        raise InputShapeError(
            f"ranges names '{unknown[0]}', but {there}. input_shapes can name an axis: {{input: ('n', 3, 'h', 'w')}}"
        )
    return {name: _range(name, ends) for name, ends in given.items()}


def _range(name: str, ends: Range) -> tuple[int, int | None]:
    if isinstance(ends, (str, bytes)) or not isinstance(ends, Sequence) or len(ends) != 2:
        raise InputShapeError(
            f"the range of '{name}' must be (least, largest), not {ends!r}; the size to tune an engine for goes to "
            "BuildOptions(profiles=...), an extent that is fixed to input_shapes"
        )
    least, most = (None if end is None else _integer(name, end) for end in ends)
    least = LEAST if least is None else least
    if least < LEAST or (most is not None and most < least):
        raise InputShapeError(f"the range of '{name}', {tuple(ends)}, must run upwards from {LEAST} or more")
    return least, most


def _integer(name: str, end: object) -> int:
    if isinstance(end, bool) or not hasattr(end, "__index__"):
        raise InputShapeError(f"the range of '{name}' holds {end!r}, which is no integer")
    value = int(end.__index__())
    if value > MAX_EXTENT:
        raise InputShapeError(f"the range of '{name}' holds {value}; no axis is that long, and None leaves an end open")
    return value


def with_ranges(mod: tvm.IRModule, given: Ranges | None) -> tvm.IRModule:
    """Give ranges to the free extents of `main`.

    Parameters
    ----------
    mod : tvm.IRModule
        It is not changed.
    given : mapping of str to (int or None, int or None), or None
        See `checked_ranges`.

    Returns
    -------
    tvm.IRModule
        `main` carries the ranges as attributes and checks them at its entry.

    Raises
    ------
    InputShapeError
        See `checked_ranges`; also that there is no `main`.
    """
    if not given:
        return mod
    main = _main(mod)
    ranges = checked_ranges(given, [symbol.name for symbol in symbols_of(main.params)])
    for attribute, bounds in (
        (LOWER_BOUND, {name: least for name, (least, _) in ranges.items()}),
        (UPPER_BOUND, {name: most for name, (_, most) in ranges.items() if most is not None}),
    ):
        if bounds:
            main = main.with_attr(attribute, {k: tvm.tirx.IntImm("int64", v) for k, v in bounds.items()})
    return _with_main(mod, _checking(main, ranges))


def check_bounds(mod: tvm.IRModule) -> tvm.IRModule:
    """Let `main` check at its entry the ranges that its attributes carry, as TVM's importer of exported programs leaves
    them; TVM plans memory by the upper ones, and an exported program is not defined outside of either.
    """
    main = _main(mod)
    bounds = attribute_bounds(main)
    least, most = bounds[LOWER_BOUND], bounds[UPPER_BOUND]
    return _with_main(mod, _checking(main, {name: (least.get(name, 0), most.get(name)) for name in {**least, **most}}))


def _checking(main: relax.Function, ranges: Mapping[str, tuple[int, int | None]]) -> relax.Function:
    symbols = symbols_of(main.params)
    checks = EntryChecks(symbols)
    for symbol in symbols:
        checks.within(symbol, *ranges.get(symbol.name, (0, None)))
    return checks.write(main)


def _main(mod: tvm.IRModule) -> relax.Function:
    main = next((func for name, func in mod.functions_items() if name.name_hint == "main"), None)
    if not isinstance(main, relax.Function):
        raise InputShapeError("the module has no Relax function main, whose extents could have ranges")
    return main


def _with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    result = mod.clone()
    result["main"] = main
    return result
