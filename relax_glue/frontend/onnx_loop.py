"""Loops whose number of rounds is known, written out round by round.

Relax has no loops inside of a dataflow block. The rounds of an exported loop mostly follow from the model (a decoder of
six layers, a beam of fixed length); then its body is converted once for each of them, with the number of the round
known to the shape arithmetic in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relax_glue.errors import ModelImportError

from .symbolic import SymbolicTensor

if TYPE_CHECKING:
    import numpy as np
    import onnx

MAX_NODES = 20_000  # of all rounds together; what is longer is meant to loop

RunBody = Callable[[Sequence[Any]], "list[Any]"]
KnownArray = Callable[[Any], "np.ndarray | None"]


@dataclass(frozen=True)
class Loop:
    """A Loop node, and how its body is converted.

    Attributes
    ----------
    node : onnx.NodeProto
        The node.
    body : onnx.GraphProto
        Its body: (round, condition, carried...) to (condition, carried..., collected...).
    operands : sequence
        The rounds there are at most, the condition to begin with, and the carried values; None for one left out.
    run : Callable
        Converts the body on values for its inputs, and returns those of its outputs.
    known : Callable
        Returns a value as numbers, None if it is computed while the model runs.
    """

    node: onnx.NodeProto
    body: onnx.GraphProto
    operands: Sequence[Any]
    run: RunBody
    known: KnownArray

    def unroll(self) -> tuple[list[Any], list[list[Any]]]:
        """Convert the body for each round.

        Returns
        -------
        carried : list
            The carried values after the last round.
        collected : list of list
            For each collected value those of all rounds.

        Raises
        ------
        ModelImportError
            The number of rounds depends on values, or the rounds together are too long.
        """
        rounds = self._rounds()
        carried = list(self.operands[2:])
        collected: list[list[Any]] = [[] for _ in range(len(self.body.output) - 1 - len(carried))]
        goes_on: Any = self.operands[1]
        done = 0
        while self._is_true(goes_on) and (rounds is None or done < rounds):
            if (done + 1) * len(self.body.node) > MAX_NODES:
                raise self._refuse(f"its rounds have more than {MAX_NODES} nodes together")
            going_in = SymbolicTensor.of(True, "bool")
            goes_on, *results = self.run([SymbolicTensor.of(done), going_in, *carried])
            carried = results[: len(carried)]
            for parts, part in zip(collected, results[len(carried) :], strict=True):
                parts.append(part)
            done += 1
        if done == 0 and collected:
            raise self._refuse("it has no rounds, and the shape of what it would collect is not known")
        return carried, collected

    def _rounds(self) -> int | None:
        """Return the number of rounds there are at most, None where only the condition ends the loop."""
        if self.operands[0] is None:
            return None
        most = self.known(self.operands[0])
        if most is None:
            raise self._refuse("the number of its rounds is not known; fix what it follows from through input_shapes")
        return int(most.reshape(-1)[0])

    def _is_true(self, condition: Any) -> bool:
        if condition is None:
            return True
        value = self.known(condition)
        if value is None:
            raise self._refuse("it ends by a condition that is computed while the model runs")
        return bool(value.reshape(-1)[0])

    def _refuse(self, reason: str) -> ModelImportError:
        return ModelImportError(
            f"node '{self.node.name}' (Loop) cannot be converted: {reason}. Only a loop of known length can be written "
            "out; export the model with torch.export or without the loop"
        )
