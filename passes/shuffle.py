"""Chains of reshapes and permutes: the shortest reshape, permute, reshape (rules.md R23, X02, X03).

What is found here and nowhere else are round trips such as Swin's window partition and reverse, and permutes
that meet across a reshape. TensorRT makes a shuffle layer of each operator of a chain and takes up to eight
axes, so a chain is shortened only if its permutes have no more axes than that, or had more before.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_glue.ir import Graph, Node
from relax_glue.ir.views import RESHAPES, emit_movement
from relax_glue.movement import Permute, Reshape
from relax_glue.rewrite import Decline, Replacement, RuleSet, rule
from relax_glue.shuffle import Shuffle, permute_rank, shortest

MAX_RANK = 8  # axes of a TensorRT tensor
MAX_LENGTH = 12  # a longer chain is shortened from its first operators on, so each visit stays cheap


def _chain(node: Node) -> list[Node]:
    """Return `node` and the reshapes and permutes that it comes from, itself first."""
    chain: list[Node] = []
    while isinstance(node.view, (Reshape, Permute)) and len(chain) < MAX_LENGTH:
        chain.append(node)
        node = node.inputs[0].node
    return chain


def _dying(chain: Sequence[Node], graph: Graph) -> int:
    """Return how many operators go when the first of the chain is replaced: those used by nothing else."""
    count = 1
    while count < len(chain) and graph.uses(chain[count]) == 1:
        count += 1
    return count


def _pays(before: Sequence[Shuffle], after: Sequence[Shuffle], dying: int) -> bool:
    """Return whether there are fewer operators, or as many but axes that TensorRT can hold."""
    rank_before, rank_after = permute_rank(before), permute_rank(after)
    if rank_after > max(MAX_RANK, rank_before):
        return False
    return len(after) < dying or (len(after) == dying and rank_before > MAX_RANK >= rank_after)


@rule(
    "shuffle-normal-form",
    *RESHAPES,
    "relax.permute_dims",
    "relax.layout_transform",
    equation="a chain of reshape | permute_dims -> the shortest reshape(permute_dims(reshape(x)))",
    producers=(*RESHAPES, "relax.permute_dims", "relax.layout_transform"),
    source="R23; tinygrad's merging of views",
)
def shuffle_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Replace the longest chain that ends here and gets shorter, by the operators that die with it."""
    chain = _chain(node)
    for length in range(len(chain), 1, -1):
        part = chain[:length]
        source = part[-1].inputs[0]
        before = [n.view for n in reversed(part)]
        after = shortest(source.shape or (), before)
        if after is None or not _pays(before, after, _dying(part, graph)):
            continue
        for movement in after:
            source = emit_movement(graph, movement, source)
        return source
    return Decline("the chain is as short as can be, or cannot be followed")


RULES = RuleSet.of(shuffle_normal_form)
