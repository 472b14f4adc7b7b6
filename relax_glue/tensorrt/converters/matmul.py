"""Matrix products: matmul with any ranks, and einsum."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from tvm import relax

from ..registry import Refusal, converter
from .arith import refuse_arithmetic
from .layouts import permutation_of
from .limits import FLOATS, dtype_of, extents, refuse_type, same, tensor_types

if TYPE_CHECKING:
    from ..network import Network


def _accepts_matmul(call: relax.Call) -> Refusal | None:
    said = refuse_arithmetic(call, FLOATS)
    if said is not None and dtype_of(call.args[0]) not in FLOATS:
        return Refusal(said.reason, "cast the operands to float32")
    return said


@converter("relax.matmul", accepts=_accepts_matmul)
def matmul(network: Network, call: relax.Call) -> Any:
    """One matrix layer. It wants equal ranks; a vector is an operand without its matrix axis."""
    dtype = dtype_of(call)
    (a, transpose_a), (b, transpose_b) = (_untransposed(network, network.tensor(arg)) for arg in call.args)
    a, b = network.cast(a, dtype), network.cast(b, dtype)
    return product(network, a, b, "", transpose_a, transpose_b)


def _untransposed(network: Network, tensor: Any) -> tuple[Any, bool]:
    """Look through a transpose of the matrix axes, which the matrix layer does by itself.

    The shuffle layer that did it is left without a reader, and TensorRT drops it.
    """
    layer = network.layer_of(tensor)
    if not isinstance(layer, network.trt.IShuffleLayer):
        return tensor, False
    rank = len(tensor.shape)
    if rank < 2 or permutation_of(layer) != [*range(rank - 2), rank - 1, rank - 2]:
        return tensor, False
    return layer.get_input(0), True


def product(
    network: Network,
    a: Any,
    b: Any,
    suffix: str = "product",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Any:
    """Add a matrix multiply layer with the batch broadcasting of numpy."""
    ops = network.trt.MatrixOperation
    vectors = [len(tensor.shape) == 1 for tensor in (a, b)]
    if not any(vectors):
        a, b = network.align(a, b)
    elif not all(vectors):  # the vector's batch axes are those of the matrix
        rank = max(len(a.shape), len(b.shape))
        (a,) = network.align(a, rank=rank - 1) if vectors[0] else (a,)
        (b,) = network.align(b, rank=rank - 1) if vectors[1] else (b,)
    op_a = ops.VECTOR if vectors[0] else ops.TRANSPOSE if transpose_a else ops.NONE
    op_b = ops.VECTOR if vectors[1] else ops.TRANSPOSE if transpose_b else ops.NONE
    return network.name(network.net.add_matrix_multiply(a, op_a, b, op_b), suffix).get_output(0)


# Einsum


def _accepts_einsum(call: relax.Call) -> Refusal | None:
    types = list(tensor_types(call.args[0].ty))
    said = [refuse_type(ty, f"operand {index}", FLOATS) for index, ty in enumerate(types)]
    said += [refuse_type(ty, "the result", FLOATS) for ty in tensor_types(call.ty)]
    refusal = next((each for each in said if each is not None), None)
    if refusal is not None:
        return refusal
    if len({str(ty.dtype) for ty in types}) != 1:
        return Refusal("the operands differ in dtype", "cast them to one")
    terms, _ = _terms(call)
    if any(len(set(term)) < len(term) for term in terms):
        return Refusal(f"{call.attrs.subscripts} takes a diagonal: a letter stands twice in one operand")
    if len(set().union(*terms)) > len(string.ascii_lowercase):
        return Refusal(f"{call.attrs.subscripts} has more letters than the alphabet")
    seen: dict[str, Any] = {}
    for term, ty in zip(terms, types, strict=True):
        for letter, extent in zip(term, extents(ty) or [], strict=True):
            if not same(seen.setdefault(letter, extent), extent):
                return Refusal(f"{letter!r} in {call.attrs.subscripts} is {seen[letter]} and {extent}")
    return None


def _terms(call: relax.Call) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; an ellipsis becomes digits, last axis "0".

    Without an arrow, the result has the letters that occur once, in alphabetical order.
    """
    equation = str(call.attrs.subscripts).replace(" ", "")
    left, arrow, right = equation.partition("->")
    ranks = [int(ty.ndim) for ty in tensor_types(call.args[0].ty)]
    terms = []
    for term, rank in zip(left.split(","), ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        terms.append(term.replace("...", "".join(str(axis) for axis in reversed(range(count)))))
    longest = max((term for term in terms), key=lambda term: sum(letter.isdigit() for letter in term))
    dots = "".join(letter for letter in longest if letter.isdigit())
    if not arrow:
        letters = "".join(terms)
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1 and letter.isalpha())
        right = "..." + "".join(once)
    return terms, right.replace("...", dots)


@converter("relax.einsum", accepts=_accepts_einsum)
def einsum(network: Network, call: relax.Call) -> Any:
    """One einsum layer, whose equation has to be explicit and in lower case."""
    terms, result = _terms(call)
    used = dict.fromkeys("".join(terms))
    names = dict(zip(used, string.ascii_lowercase, strict=False))
    renamed = ["".join(names[letter] for letter in term) for term in (*terms, result)]
    equation = f"{','.join(renamed[:-1])}->{renamed[-1]}"
    tensors = network.tensors(call.args[0])
    return network.name(network.net.add_einsum(tensors, equation)).get_output(0)
