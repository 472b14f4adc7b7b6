"""ConvertToDataflow: pure code in as few blocks as can be, and nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.passes import ConvertToDataflow


@I.ir_module
class Loose:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        a = R.exp(x)
        with R.dataflow():
            b = R.sin(a)
            R.output(b)
        d = R.cos(b)
        _ = R.print(format="between")
        e = R.abs(d)
        f = R.negative(e)
        if c:
            g = R.tan(f)
            y: R.Tensor((4,), "float32") = R.sinh(g)
        else:
            y: R.Tensor((4,), "float32") = f
        return y


def kinds(seq: relax.SeqExpr) -> list[tuple[bool, int]]:
    return [(isinstance(block, relax.DataflowBlock), len(block.bindings)) for block in seq.blocks]


def test_pure_code_joins_the_blocks_beside_it() -> None:
    after = ConvertToDataflow()(Loose)
    relax.analysis.well_formed(after)
    body = after["main"].body
    assert kinds(body) == [(True, 3), (False, 1), (True, 2), (False, 1)]
    first = body.blocks[0].bindings
    assert [isinstance(b.var, relax.DataflowVar) for b in first] == [True, True, False], "a and b are used in it alone"
    branch = body.blocks[3].bindings[0].value.true_branch
    assert kinds(branch) == [(True, 2)]
    assert ConvertToDataflow()(after).same_as(after)


def test_few_bindings_get_no_block_of_their_own() -> None:
    after = ConvertToDataflow(3)(Loose)
    relax.analysis.well_formed(after)
    assert kinds(after["main"].body) == [(True, 3), (False, 4)]


def test_a_check_is_kept_and_what_it_says_is_known() -> None:
    """TVM's pass takes the second cast to n for its definition, drops it, and the sum has no shape."""

    @I.ir_module
    class Checked:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(dtype="int64", ndim=2):
            n = T.int64()
            m = T.int64()
            a = R.match_cast(R.nonzero(x), R.Tensor((1, n), "int64"))
            b = R.match_cast(R.nonzero(y), R.Tensor((1, m), "int64"))
            c = R.match_cast(b, R.Tensor((1, n), "int64"))
            return R.add(a, c)

    after = ConvertToDataflow()(Checked)
    relax.analysis.well_formed(after)
    (block,) = after["main"].body.blocks
    assert sum(isinstance(binding, relax.MatchCast) for binding in block.bindings) == 3
    assert block.bindings[-1].var.ty.shape is not None
    machine = relax.VirtualMachine(relax_glue.compile(Checked, "llvm"), tvm.cpu())
    x = np.array([1, 0, 1, 0], "float32")
    found = machine["main"](*map(tvm.runtime.tensor, (x, x[::-1].copy())))
    np.testing.assert_array_equal(found.numpy(), [[1, 5]])
    with pytest.raises(Exception, match=r"(?i)match|shape|extent|length"):
        machine["main"](*map(tvm.runtime.tensor, (x, np.ones(4, "float32"))))


def test_a_value_of_another_type_than_its_variable_gets_that() -> None:
    """TVM knows that min(0, k) is 0 only where k is a parameter's, so a call inferred anew has a longer type."""
    k = tirx.Var("k", "int64")
    x = relax.Var("x", relax.TensorType((2, k), "float32"))
    kept = tirx.min(tirx.max(k - 1, 0), k)
    known, inferred = (
        relax.TensorType((2, extent), "float32") for extent in (kept, kept - tirx.min(tirx.IntImm("int64", 0), k))
    )
    name, result = relax.Var("name", x.ty), relax.Var("result", known)
    call = relax.op.strided_slice(name, [1], [0], [-1])
    relax.expr._update_type(call, inferred)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(name, x), relax.VarBinding(result, call)])], result)
    relax.expr._update_type(body, known)
    made = relax.Function([x], body, relax.TensorType(ndim=2, dtype="float32")).with_attr("global_symbol", "main")
    assert relax.analysis.well_formed(ConvertToDataflow()(tvm.IRModule({"main": made}))) is None
