"""Elementwise operators on and to booleans: comparison, logic, tests of floats, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ..registry import Refusal, converter
from .arith import binary, refuse_arithmetic, select, unary
from .limits import INTS, MOVABLE, NUMBERS, dtype_of

if TYPE_CHECKING:
    from ..network import Network

# TensorRT has no bitwise layers, but on booleans the logical ones are those.
_LOGICAL = {
    "relax.logical_and": "AND",
    "relax.logical_or": "OR",
    "relax.logical_xor": "XOR",
    "relax.bitwise_and": "AND",
    "relax.bitwise_or": "OR",
    "relax.bitwise_xor": "XOR",
}


def _accepts_bool(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, ("bool",))


def _accepts_test(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, NUMBERS, results=("bool",))


@converter("relax.isnan", "relax.isinf", "relax.isfinite", accepts=_accepts_test)
def finiteness(network: Network, call: relax.Call) -> Any:
    """Ask what kind of number each element is; an integer is always finite, which x == x says."""
    x = network.tensor(call.args[0])
    name = call.op.name
    if dtype_of(call.args[0]) in INTS:
        same = binary(network, "EQUAL", x, x)
        return same if name == "relax.isfinite" else unary(network, "NOT", same, "")
    if name == "relax.isnan":
        return unary(network, "ISNAN", x, "")
    if name == "relax.isinf":
        return unary(network, "ISINF", x, "")
    odd = binary(network, "OR", unary(network, "ISNAN", x), unary(network, "ISINF", x))
    return unary(network, "NOT", odd, "")


@converter("relax.logical_not", accepts=_accepts_bool)
def logical_not(network: Network, call: relax.Call) -> Any:
    """Negate a boolean."""
    return unary(network, "NOT", network.tensor(call.args[0]), "")


def _accepts_compare(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, NUMBERS, results=("bool",))


def _accepts_equal(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, (*NUMBERS, "bool"), results=("bool",))


@converter("relax.greater", "relax.less", accepts=_accepts_compare)
def compare(network: Network, call: relax.Call) -> Any:
    """One elementwise layer."""
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, "GREATER" if call.op.name == "relax.greater" else "LESS", a, b, "")


@converter("relax.greater_equal", "relax.less_equal", accepts=_accepts_compare)
def compare_or_equal(network: Network, call: relax.Call) -> Any:
    """Greater or equal; not "not less", which would hold for NaN."""
    a, b = (network.tensor(arg) for arg in call.args)
    op = "GREATER" if call.op.name == "relax.greater_equal" else "LESS"
    return binary(network, "OR", binary(network, op, a, b), binary(network, "EQUAL", a, b), "")


@converter("relax.equal", "relax.not_equal", accepts=_accepts_equal)
def equal(network: Network, call: relax.Call) -> Any:
    """Equality; NaN differs from itself."""
    a, b = (network.tensor(arg) for arg in call.args)
    if call.op.name == "relax.equal":
        return binary(network, "EQUAL", a, b, "")
    return unary(network, "NOT", binary(network, "EQUAL", a, b), "")


@converter(*_LOGICAL, accepts=_accepts_bool)
def logical(network: Network, call: relax.Call) -> Any:
    """One elementwise layer on booleans."""
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, _LOGICAL[call.op.name], a, b, "")


def _accepts_where(call: relax.Call) -> Refusal | None:
    condition = refuse_arithmetic(call, ("bool",), results=MOVABLE, args=(0,))
    return condition or refuse_arithmetic(call, MOVABLE, args=(1, 2))


@converter("relax.where", accepts=_accepts_where)
def where(network: Network, call: relax.Call) -> Any:
    """One select layer."""
    condition, a, b = (network.tensor(arg) for arg in call.args)
    return select(network, condition, a, b, "")
