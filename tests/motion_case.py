"""Random modules for the tests of motions, and the check that one keeps every bit, settles, and never costs more."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relax_glue.ir import Node, read_block
from relax_glue.testing import Pair, check_many

MODULES = 120


class DrawnCluster:
    """A random module of float32 tensors; `call` draws what it computes next from `values`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = relax.BlockBuilder()
        types = [relax.TensorType(shape, "float32") for shape in self.input_shapes()]
        self.params = [relax.Var(f"x{k}", ty) for k, ty in enumerate(types)]
        self.values: list[relax.Expr] = list(self.params)

    def input_shapes(self) -> Sequence[Sequence[int]]:
        raise NotImplementedError

    def call(self) -> relax.Expr:
        raise NotImplementedError

    def shape(self, value: relax.Expr) -> list[int]:
        return [int(e) for e in value.ty.shape.values]

    def constant(self, shape: list[int]) -> relax.Expr:
        """Draw a constant that broadcasts to a shape."""
        own = shape[self.random.randrange(len(shape)) :]
        own = [e if self.random.random() < 0.6 else 1 for e in own]
        return relax.const(np.arange(np.prod(own), dtype="float32").reshape(own))

    def module(self) -> tvm.IRModule:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                for _ in range(self.random.randint(4, 12)):
                    self.values.append(self.builder.emit(self.call()))
                result = self.builder.emit_output(relax.Tuple([self.values[-1], self.random.choice(self.values[2:])]))
            self.builder.emit_func_output(result)
        return self.builder.get()


def nodes_of(mod: tvm.IRModule) -> list[Node]:
    return [n for block in mod["main"].body.blocks for n in read_block(block)]


def check_random_clusters(
    draw: Callable[[int], DrawnCluster], motion: tvm.transform.Pass, costs: Callable[[tvm.IRModule], Sequence[int]]
) -> int:
    """Return how many of the random modules a motion changes; none of the costs may grow."""
    pairs, moved = [], 0
    for seed in range(MODULES):
        before = draw(seed).module()
        after = motion(before)
        relax.analysis.well_formed(after)
        tvm.ir.assert_structural_equal(motion(after), after)
        assert all(new <= old for new, old in zip(costs(after), costs(before), strict=True))
        moved += not tvm_ffi.structural_equal(before, after)
        rng = np.random.default_rng(seed)
        shapes = [[int(e) for e in p.ty.shape.values] for p in before["main"].params]
        pairs.append(Pair(before, after, [rng.normal(size=shape).astype("float32") for shape in shapes]))
    for first in range(0, len(pairs), 30):
        check_many(pairs[first : first + 30])
    return moved
