"""LSTM and GRU of known length, written out step by step; TVM's importer does not have them.

The products with the inputs of all steps are one matmul. What is left to a step is the product with the state, and the
gates. A free length is refused: Relax has no loop in a dataflow block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from tvm import relax

from .node import OnnxNode, dtype_of, extents_of, scalar

MAX_STEPS = 1024
STATES = MappingProxyType({"LSTM": 2, "GRU": 1})
ACTIVATIONS = MappingProxyType({"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")})
DIRECTIONS = MappingProxyType({"forward": (False,), "reverse": (True,), "bidirectional": (False, True)})  # backwards?

State = list[relax.Expr]
Step = Callable[[relax.Expr, State], State]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction: of the input, of the state, and what is added to each product."""

    of_input: np.ndarray
    of_state: np.ndarray
    input_bias: np.ndarray
    state_bias: np.ndarray


def lstm(node: OnnxNode) -> relax.Expr:
    """LSTM over a known number of steps, each written out. Its gates stand in the order i, o, f, c."""

    def step_of(weights: Weights) -> Step:
        recurrent = relax.const(weights.of_state.T.copy())
        bias = relax.const(weights.input_bias + weights.state_bias)

        def step(x: relax.Expr, state: State) -> State:
            hidden, cell = state
            product = node.emit(relax.op.matmul(hidden, recurrent))
            total = node.emit(relax.op.add(node.emit(relax.op.add(x, product)), bias))
            i, o, f, c = _gates(node, total, 4)
            i, o, f = (node.emit(relax.op.sigmoid(gate)) for gate in (i, o, f))
            kept = node.emit(relax.op.multiply(f, cell))
            added = node.emit(relax.op.multiply(i, node.emit(relax.op.tanh(c))))
            cell = node.emit(relax.op.add(kept, added))
            return [node.emit(relax.op.multiply(o, node.emit(relax.op.tanh(cell)))), cell]

        return step

    return _unrolled(node, step_of)


def gru(node: OnnxNode) -> relax.Expr:
    """GRU over a known number of steps, each written out. Its gates stand in the order z, r, h."""
    resets_product = bool(node.attrs.get("linear_before_reset", 0))

    def step_of(weights: Weights) -> Step:
        size = weights.of_state.shape[1]
        recurrent, bias = relax.const(weights.of_state.T.copy()), relax.const(weights.state_bias)
        last, last_bias = (
            relax.const(weights.of_state[2 * size :].T.copy()),
            relax.const(weights.state_bias[2 * size :]),
        )
        input_bias = relax.const(weights.input_bias)
        one = scalar(1, weights.of_state.dtype)

        def candidate(x: relax.Expr, hidden: relax.Expr, reset: relax.Expr, product: relax.Expr) -> relax.Expr:
            if resets_product:
                return node.emit(relax.op.add(x, node.emit(relax.op.multiply(reset, product))))
            fresh = node.emit(relax.op.matmul(node.emit(relax.op.multiply(reset, hidden)), last))
            return node.emit(relax.op.add(x, node.emit(relax.op.add(fresh, last_bias))))

        def step(x: relax.Expr, state: State) -> State:
            (hidden,) = state
            product = node.emit(relax.op.add(node.emit(relax.op.matmul(hidden, recurrent)), bias))
            given = _gates(node, node.emit(relax.op.add(x, input_bias)), 3)
            z, r, h = _gates(node, product, 3)
            update = node.emit(relax.op.sigmoid(node.emit(relax.op.add(given[0], z))))
            reset = node.emit(relax.op.sigmoid(node.emit(relax.op.add(given[1], r))))
            new = node.emit(relax.op.tanh(candidate(given[2], hidden, reset, h)))
            rest = node.emit(relax.op.multiply(node.emit(relax.op.subtract(one, update)), new))
            return [node.emit(relax.op.add(rest, node.emit(relax.op.multiply(update, hidden))))]

        return step

    return _unrolled(node, step_of)


def _gates(node: OnnxNode, total: relax.Expr, count: int) -> list[relax.Expr]:
    parts = node.emit(relax.op.split(total, count, axis=-1))
    return [node.emit(relax.TupleGetItem(parts, k)) for k in range(count)]


def _unrolled(node: OnnxNode, step_of: Callable[[Weights], Step]) -> relax.Expr:
    """Return (Y, Y_h) and for an LSTM Y_c: all states (steps, directions, batch, size), and the last ones."""
    _check_form(node)
    steps = _steps(node)
    outputs, ends = [], []
    for index, backwards in enumerate(DIRECTIONS[node.text("direction", "forward")]):
        weights = _weights(node, index)
        inputs = _inputs(node, weights, steps)
        state, step = _initial(node, index, weights), step_of(weights)
        hidden: dict[int, relax.Expr] = {}
        for place in reversed(range(steps)) if backwards else range(steps):
            state = step(inputs[place], state)
            hidden[place] = state[0]
        outputs.append(node.emit(relax.op.stack([hidden[place] for place in range(steps)], 0)))
        ends.append(state)
    every = node.emit(relax.op.stack(outputs, 1))
    last = [node.emit(relax.op.stack(list(states), 0)) for states in zip(*ends, strict=True)]
    return relax.Tuple([every, *last])


def _check_form(node: OnnxNode) -> None:
    """Refuse what the steps do not have: other activations, a clip, peepholes, another layout, lengths of their own."""
    kind = node.op_type
    direction = node.text("direction", "forward")
    if direction not in DIRECTIONS:
        raise node.refuse(f"ONNX has no direction '{direction}'")
    given = [name.decode() if isinstance(name, bytes) else str(name) for name in node.attrs.get("activations", [])]
    usual = list(ACTIVATIONS[kind]) * len(DIRECTIONS[direction])
    found = {
        f"activations {given}": [name.lower() for name in given] not in ([], usual),
        "clip": node.attrs.get("clip") is not None,
        "input_forget": bool(node.attrs.get("input_forget", 0)),
        "layout 1": bool(node.attrs.get("layout", 0)),
        "peepholes": kind == "LSTM" and node.input(7) is not None,
        "sequence_lens": node.input(4) is not None and not _lengths_are_whole(node),
    }
    for what, present in found.items():
        if present:
            raise node.refuse(f"{what} is not converted; export it without, or cut the model off before it")


def _lengths_are_whole(node: OnnxNode) -> bool:
    lengths, extents = node.constant(4), extents_of(node.inputs[0])
    return lengths is not None and extents is not None and bool((lengths == extents[0]).all())


def _steps(node: OnnxNode) -> int:
    extents = extents_of(node.inputs[0])
    steps = None if extents is None else extents[0]
    if not isinstance(steps, int):
        raise node.refuse(f"its sequence has the free length {steps}; fix what it follows from through input_shapes")
    if not 0 < steps <= MAX_STEPS:
        raise node.refuse(f"its sequence has {steps} steps, and from 1 to {MAX_STEPS} are written out")
    return steps


def _weights(node: OnnxNode, direction: int) -> Weights:
    of_input, of_state = node.constant(1), node.constant(2)
    if of_input is None or of_state is None:
        raise node.refuse("its weights are computed while the model runs; they have to be constants")
    width = of_state.shape[1]
    both = np.zeros((direction + 1, 2 * width), of_state.dtype) if node.input(3) is None else node.constant(3)
    if both is None:
        raise node.refuse("its bias is computed while the model runs; it has to be a constant")
    return Weights(of_input[direction], of_state[direction], both[direction][:width], both[direction][width:])


def _inputs(node: OnnxNode, weights: Weights, steps: int) -> Sequence[relax.Expr]:
    """Return for each step the product of its input with the weights: (batch, gates * size)."""
    product = node.emit(relax.op.matmul(node.inputs[0], relax.const(weights.of_input.T.copy())))
    parts = node.emit(relax.op.split(product, steps, axis=0)) if steps > 1 else None
    rows = [product] if parts is None else [node.emit(relax.TupleGetItem(parts, k)) for k in range(steps)]
    return [node.emit(relax.op.squeeze(row, [0])) for row in rows]


def _initial(node: OnnxNode, direction: int, weights: Weights) -> State:
    """Return the states to begin with, (batch, size) each: zeros where none is given."""
    extents = extents_of(node.inputs[0]) or []
    shape, dtype = [extents[1], weights.of_state.shape[1]], dtype_of(node.inputs[0])
    states = []
    for index in range(5, 5 + STATES[node.op_type]):
        given = node.input(index)
        if given is None:
            states.append(node.emit(relax.op.zeros(relax.ShapeExpr(shape), dtype.name)))
            continue
        row = node.emit(relax.op.strided_slice(given, [0], [direction], [direction + 1]))
        states.append(node.emit(relax.op.squeeze(row, [0])))
    return states
