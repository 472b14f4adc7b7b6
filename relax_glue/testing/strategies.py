"""The hypothesis strategy that draws glue modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from tvm import relax

from relax_glue.testing import arithmetic, idioms, indexing, operators
from relax_glue.testing.case import Array, Case, Nested
from relax_glue.testing.graph import MAX_ELEMENTS, MAX_RANK, Choices, Graph, Value, describe, fill
from relax_glue.testing.symbols import Extent, Symbols, shape_at

DTYPES = ("float32", "float16", "int64", "int32", "int8", "uint8", "bool")

_EXTENTS = (2, 3, 1, 4, 6, 2, 3, 1, 4, 5, 8, 2, 3, 4, 6, 8, 2, 1, 4, 0)
"""The extents drawn. Few of them are 0: what follows an empty tensor is empty and tests little."""

_RANKS = (3, 2, 1, 4, 4, 3, 4, 5, 2, 0, 6)

_MOVES: tuple[tuple[int, Callable[[Graph], None]], ...] = (
    (4, operators.strided_slice),
    (3, operators.split),
    (4, operators.concat),
    (1, operators.stack),
    (4, operators.reshape),
    (2, operators.expand_dims),
    (2, operators.squeeze),
    (2, operators.flatten),
    (4, operators.permute_dims),
    (2, operators.broadcast_to),
    (1, operators.flip),
    (1, operators.tile),
    (1, operators.repeat),
    (1, operators.match_cast),
    (3, operators.block),
    (3, indexing.take),
    (1, indexing.gather_elements),
    (1, indexing.slice_scatter),
    (2, indexing.pad),
    (2, indexing.resize2d),
    (1, indexing.layout_transform),
    (2, idioms.split_and_concat),
    (2, idioms.roll),
    (2, idioms.concat_and_slice),
    (2, idioms.slice_chain),
    (2, idioms.permute_pair),
    (2, idioms.reshape_permute_reshape),
    (1, idioms.focus),
    (1, idioms.windows),
    (1, idioms.unbind_and_stack),
    (1, idioms.upsample_by_broadcast),
    (1, idioms.pad_and_crop),
    (1, idioms.take_range),
    (1, idioms.merge_and_unmerge),
)

_COMPUTES: tuple[tuple[int, Callable[[Graph], None]], ...] = (
    (2, arithmetic.relu),
    (1, arithmetic.negative),
    (1, arithmetic.clip),
    (3, arithmetic.binary),
    (1, arithmetic.where),
    (2, arithmetic.astype),
    (2, arithmetic.reduction),
)


def _spread(
    table: Sequence[tuple[int, Callable[[Graph], None]]],
) -> tuple[Callable[[Graph], None], ...]:
    return tuple(step for weight, step in table for _ in range(weight))


_MOVING_STEPS = _spread(_MOVES)
_ALL_STEPS = _spread(_MOVES + _COMPUTES)


def fuzz_examples(default: int) -> int:
    """Return how many examples a test should draw: RELAX_GLUE_FUZZ where it is set, else `default`.

    Raises
    ------
    ValueError
        If the variable is set and is no positive whole number.
    """
    text = os.environ.get("RELAX_GLUE_FUZZ", "")
    if not text:
        return default
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"RELAX_GLUE_FUZZ is {text!r}; give the number of examples, such as 50000")
    return int(text)


@st.composite
def modules(
    draw: st.DrawFn,
    *,
    max_operators: int = 6,
    dtypes: Sequence[str] = DTYPES,
    symbolic: bool = True,
    special: bool = True,
    only_moves: bool = False,
) -> Case:
    """Draw a module of glue operators, with inputs.

    Its `main` is a graph of slices, splits, concats, reshapes, permutes, broadcasts, takes, pads and their
    kin, of ranks 0 to 6 and extents 0 to 8, with a few operators that compute in between. Values are shared,
    repeated, left unused; the result is a tensor or a nested tuple in which parameters and repetitions occur.
    Every draw is valid, compiles on LLVM, and shrinks to fewer and plainer operators.

    Parameters
    ----------
    max_operators
        The most steps drawn. A step is one operator or one idiom of up to a dozen.
    dtypes
        The element types of the parameters.
    symbolic
        Whether some modules have symbolic extents: one to three symbols, at any axis, and expressions of them.
        Their cases hold inputs of other sizes too.
    special
        Whether floating-point inputs hold NaN, infinities and -0.0.
    only_moves
        Whether to leave out the operators that compute.

    Returns
    -------
    A strategy of `Case`.

    Raises
    ------
    ValueError
        If `max_operators` is negative or `dtypes` is empty or names a dtype that is not drawn.
    """
    unknown = [dtype for dtype in dtypes if dtype not in DTYPES]
    if max_operators < 0 or not dtypes or unknown:
        raise ValueError(f"max_operators={max_operators}, dtypes={list(dtypes)}: give dtypes out of {DTYPES}")
    choices = Choices(lambda low, high: draw(st.integers(low, high)))
    symbols = Symbols.draw(choices) if symbolic and choices.one_in(3) else None
    parameters = _parameters(choices, dtypes, symbols, special and choices.one_in(2))
    graph = Graph(choices, parameters, dataflow=not choices.one_in(8), may_compute=not only_moves)
    steps = _MOVING_STEPS if only_moves else _ALL_STEPS
    for step in range(max_operators):
        if step and choices.integer(0, 11) == 0:  # so that a failing module shrinks to few steps
            break
        choices.item(steps)(graph)
    result, expected = _result(graph)
    module = graph.finish(parameters, result)
    inputs = tuple(value.array for value in parameters)
    if symbols is None:
        return Case(module, inputs, expected, {}, graph.only_moves)
    sizes = {symbol.name: size for symbol, size in symbols.sizes.items()}
    return Case(module, inputs, expected, sizes, graph.only_moves, _other_inputs(parameters, symbols))


def _parameters(choices: Choices, dtypes: Sequence[str], symbols: Symbols | None, special: bool) -> list[Value]:
    """Draw one to three parameters; later ones often resemble the first, so that they can be joined."""
    extents = _shape(choices, symbols)
    first_dtype = choices.item(dtypes)
    values: list[Value] = []
    for index in range(choices.integer(1, 3)):
        likeness = choices.integer(0, 3) if index else 0
        own = list(extents) if likeness < 3 else _shape(choices, symbols)
        if likeness == 1 and own:
            own[choices.integer(0, len(own) - 1)] = choices.item([1, 2, 3])
        dtype = first_dtype if likeness < 2 else choices.item(dtypes)
        var = relax.Var(f"x{index}", relax.TensorType(own, dtype))
        values.append(describe(var, fill(_at(own, symbols), dtype, index, special=special)))
    return values


def _at(shape: Sequence[Extent], symbols: Symbols | None) -> list[int]:
    return shape_at(shape, symbols.sizes if symbols is not None else {})


def _other_inputs(parameters: Sequence[Value], symbols: Symbols) -> tuple[tuple[Array, ...], ...]:
    """Draw inputs of two other sizes, without NaN and its kin, whose fate may hang on where they stand."""
    found = []
    for _ in range(2):
        sizes = symbols.other_sizes()
        shapes = [shape_at(value.extents, sizes) for value in parameters]
        pairs = zip(parameters, shapes, strict=True)
        found.append(tuple(fill(shape, value.dtype, index) for index, (value, shape) in enumerate(pairs)))
    return tuple(found)


def _shape(choices: Choices, symbols: Symbols | None) -> list[Extent]:
    rank = choices.item(_RANKS)
    extents: list[Extent] = []
    room = MAX_ELEMENTS // 2
    for _ in range(min(rank, MAX_RANK)):
        extent = choices.item(_EXTENTS)
        extent = extent if extent <= room else 1
        extents.append(extent)
        room //= max(extent, 1)
    return extents if symbols is None else symbols.put_into(extents, MAX_ELEMENTS // 2)


def _result(graph: Graph) -> tuple[relax.Expr, Nested]:
    """Draw what the function returns: the last value, or a tuple, maybe nested, of anything there is."""
    choices = graph.choices
    last = graph.values[-1]
    if graph.tuples and choices.one_in(6):
        var, arrays = choices.item(graph.tuples)
        return graph.export(var), tuple(arrays)
    if not choices.one_in(2):
        return graph.export(last.expr), last.array
    fields: list[tuple[relax.Expr, Nested]] = [(graph.export(last.expr), last.array)]
    for _ in range(choices.integer(0, 3)):
        fields.append(_field(graph))
    if choices.one_in(4):
        fields = [(relax.Tuple([expr for expr, _ in fields]), tuple(value for _, value in fields)), _field(graph)]
    if choices.one_in(3):
        fields.reverse()
    return relax.Tuple([expr for expr, _ in fields]), tuple(value for _, value in fields)


def _field(graph: Graph) -> tuple[relax.Expr, Nested]:
    """Draw one field of the result: any value, a parameter or one returned already among them, or a tuple."""
    if graph.tuples and graph.choices.one_in(3):
        var, arrays = graph.choices.item(graph.tuples)
        return graph.export(var), tuple(arrays)
    value = graph.choices.item(graph.values[::-1])
    return graph.export(value.expr), value.array
