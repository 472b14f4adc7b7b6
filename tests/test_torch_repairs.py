"""What the importer of exported programs gets wrong: each repair against PyTorch, compiled by LLVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_glue.errors import ModelImportError
from relax_glue.frontend import from_torch
from relax_glue.frontend.torch_repairs import REPAIRS

torch = pytest.importorskip("torch", reason="torch makes the programs")
F = torch.nn.functional


def program(function: Callable[..., Any], *inputs: Any) -> Any:
    """Export a function of tensors; its results are listed in a tuple."""

    class Model(torch.nn.Module):
        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            result = function(*tensors)
            return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    return torch.export.export(Model().eval(), inputs)


def agrees(function: Callable[..., Any], *inputs: Any) -> tvm.IRModule:
    """Import, compile and compare with PyTorch: shapes, types and values."""
    exported = program(function, *inputs)
    mod = from_torch(exported)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    results = machine["main"](*[tvm.runtime.tensor(tensor.numpy()) for tensor in inputs])
    expected = exported.module()(*inputs)
    assert len(results) == len(expected)
    for result, tensor in zip(results, expected, strict=True):
        assert result.numpy().dtype == tensor.numpy().dtype
        np.testing.assert_allclose(result.numpy(), tensor.numpy(), rtol=1e-5, atol=1e-5)
        assert result.numpy().shape == tuple(tensor.shape)
    return mod


def random(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype("float32"))


def written(x: Any, place: Any, value: Any) -> Any:
    result = x.clone()
    result[place] = value
    return result


def operators(mod: tvm.IRModule) -> list[str]:
    """Return the operators of `main` in order."""
    calls = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    return [call.op.name for call in calls if isinstance(call, relax.Call)]


X = random(2, 8, 4, 5)
ROWS, COLUMNS = torch.tensor([1, 2]), torch.tensor([0, -3])

INDEXING = {
    "select the last": lambda x: (x[:, -1], x[0], x[..., -2]),
    "one axis, negative": lambda x: x[:, [0, -1]],
    "a matrix of indices": lambda x: x[..., torch.tensor([[0, 1], [2, -1]])],
    "two axes in front": lambda x: x[ROWS - 1, COLUMNS],
    "two axes inside": lambda x: x[:, ROWS, COLUMNS],
    "two last axes": lambda x: x[:, :, ROWS, COLUMNS],
    "two axes apart": lambda x: x[ROWS - 1, :, COLUMNS],
    "an outer product": lambda x: x[:, ROWS[:, None], torch.tensor([0, 1, -1])],
    "an outer product of axes apart": lambda x: x[:, ROWS[:, None], :, torch.tensor([0, 1, 2])],
    "all axes": lambda x: x[ROWS - 1, ROWS, ROWS, COLUMNS],
    "put on one axis": lambda x: written(x, (slice(None), ROWS), torch.ones(2, 2, 4, 5)),
    "put on two axes": lambda x: written(x, (slice(None), ROWS, COLUMNS), torch.ones(2, 5)),
    "put on axes apart": lambda x: written(x, (ROWS - 1, slice(None), COLUMNS), torch.ones(8, 5)),
    "add on one axis": lambda x: x.index_add(1, torch.tensor([2, 2]), torch.ones(2, 2, 4, 5)),
    "fill": lambda x: x.index_fill(1, ROWS, 3.0),
    "put by a mask": lambda x: x.index_put((x < 0,), torch.tensor(2.0)),
    "put by a mask of rows": lambda x: x.index_put((x[:, 0, 0, 0] < 0,), torch.tensor(2.0)),
    "windows side by side": lambda x: x.unfold(2, 2, 2),
    "windows with a rest": lambda x: x.unfold(1, 3, 3),
    "windows that overlap": lambda x: x.unfold(1, 3, 2),
    "scatter a larger source": lambda x: x.scatter(1, torch.zeros(2, 1, 4, 4, dtype=torch.long), x * 2),
    "scatter into a part": lambda x: x.scatter(1, torch.ones(2, 1, 3, 4, dtype=torch.long), x[:, :1, 1:, 1:]),
    "scatter and add": lambda x: x.scatter_add(1, torch.zeros(2, 3, 4, 5, dtype=torch.long), x),
    "scatter the largest": lambda x: x.scatter_reduce(1, torch.zeros(2, 3, 4, 5, dtype=torch.long), x, "amax"),
    "repeat each so often": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2, 3]), 2, output_size=6),
    "indices of a triangle": lambda x: (torch.triu_indices(4, 4), torch.tril_indices(3, 3), x),
}

ARITHMETIC = {
    "amax": lambda x: (x.amax((1, 2)), x.amin(1, keepdim=True), x.amax()),
    "logsumexp": lambda x: x.logsumexp(1),
    "any and all": lambda x: ((x > 0).any(), (x > 0).all(1), x.any(2, keepdim=True), (x > 9).any()),
    "min with its place": lambda x: (*x.min(1), *x.min(-1, keepdim=True)),
    "prod of an axis": lambda x: x.prod(1),
    "variance and mean": lambda x: (*torch.var_mean(x, 1), *torch.var_mean(x, (2, 3), correction=0, keepdim=True)),
    "cumsum of booleans": lambda x: ((x > 0).cumsum(1), (x > 0).int().cumsum(-1), x.cumsum(2)),
    "clamp of integers": lambda x: (x.long().clamp(min=0), x.int().clamp(max=1), x.long().clamp(-1, 1), x.clamp(0)),
    "booleans against numbers": lambda x: ((x > 0) == 0, (x > 0) != 0, (x > 0) == 1, x != 0),
    "arithmetic of booleans": lambda x: ((x > 0) * (x < 1), (x > 1) + (x < 0), (x > 0) * x, (x > 0) + 1),
    "exp2": torch.exp2,
    "erfc": torch.erfc,
    "hypot": lambda x: torch.hypot(x, x + 1),
    "floor division": lambda x: (x.long() // 2, x.int() // -3, x // 0.3, x.long() // x.abs().long().add(1)),
    "division by a number": lambda x: (
        torch.div(x.long() * 5, 3, rounding_mode="trunc"),
        torch.div(x * 9, 2, rounding_mode="floor"),
        torch.div(x * 9, 2, rounding_mode="trunc"),
    ),
    "distances": lambda x: torch.cdist(x, x + 1),
    "k-th smallest": lambda x: (*x.kthvalue(2, 1), *x.kthvalue(1, -1, keepdim=True)),
    "shifts": lambda x: (x.long() << 2, x.int() >> 1, x.long() << x.abs().long()),
    "elu and its kin": lambda x: (F.elu(x, 0.5), F.selu(x), F.celu(x, 0.5), F.elu(x * 100)),
    "group norm without weights": lambda x: F.group_norm(x, 4),
    "group norm with them": lambda x: F.group_norm(x, 4, torch.arange(8.0), torch.ones(8)),
}

SAMPLING = {
    "average pool by its kernel": lambda x: (
        F.avg_pool2d(x, 2, ceil_mode=True),
        F.avg_pool1d(x[0], 2, padding=1),
        F.avg_pool2d(x, 3, padding=1, divisor_override=2),
        F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False),
        F.avg_pool3d(x, 2),
    ),
    "max pool by its kernel": lambda x: (F.max_pool2d(x, 2, ceil_mode=True), F.max_pool3d(x, 2, padding=1)),
    "adaptive max pool": lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (2, 3))),
    "adaptive max pool of three axes": lambda x: F.adaptive_max_pool3d(x, (3, 2, 5)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest to a smaller size": lambda x: F.interpolate(x, size=(3, 4)),
    "nearest to an odd size": lambda x: F.interpolate(x, size=(7, 11)),
    "nearest by an odd factor": lambda x: F.interpolate(x, scale_factor=1.7),
    "linear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "linear by a factor that leaves a rest": lambda x: F.interpolate(x, scale_factor=(1.3, 0.5), mode="bilinear"),
    "linear by a factor from the sizes": lambda x: F.interpolate(
        x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True
    ),
    "linear, corners": lambda x: F.interpolate(x, size=(9, 1), mode="bilinear", align_corners=True),
    "linear, antialias": lambda x: F.interpolate(x, size=(3, 9), mode="bilinear", antialias=True),
    "cubic, antialias": lambda x: F.interpolate(x, size=(3, 9), mode="bicubic", antialias=True),
    "cubic by a factor that leaves a rest": lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic"),
    "linear of one axis": lambda x: F.interpolate(x.flatten(2), size=13, mode="linear"),
    "nearest of three axes": lambda x: F.interpolate(x[None], scale_factor=2),
}


@pytest.mark.parametrize("function", INDEXING.values(), ids=INDEXING)
def test_indexing(function: Callable[..., Any]) -> None:
    agrees(function, X)


@pytest.mark.parametrize("function", ARITHMETIC.values(), ids=ARITHMETIC)
def test_arithmetic(function: Callable[..., Any]) -> None:
    agrees(function, X)


@pytest.mark.parametrize("function", SAMPLING.values(), ids=SAMPLING)
def test_sampling(function: Callable[..., Any]) -> None:
    agrees(function, X)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    grid = torch.rand(2, 6, 3, 2) * 2.4 - 1.2
    agrees(lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=False), X, grid)


def test_indices_that_come_in_are_wrapped() -> None:
    agrees(lambda x, i: x[:, i], X, torch.tensor([0, -1, 3]))
    agrees(lambda x, i, j: x[i, :, j], X, torch.tensor([0, -1]), torch.tensor([-4, 2]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, x[0, :, 0].argmax(0)],
        lambda x: x.flatten()[x.flatten().topk(3)[1] // 2],
        lambda x: x[:, torch.arange(3) * 2 + 1],
        lambda x: x[:, (x[0, 0, 0] * 9).long() % 8],
        lambda x: x[:, (x[0, 0, 0] * 9).long().clamp(0, 7)],
    ],
)
def test_indices_that_cannot_be_negative_are_left_alone(function: Callable[..., Any]) -> None:
    mod = agrees(function, X)
    assert "relax.where" not in operators(mod)


@pytest.mark.parametrize("function", [lambda x: x[:, x[0, 0, 0].long() % 8 - 8], lambda x: x[:, torch.arange(3) - 3]])
def test_indices_that_can_be_negative_are_wrapped(function: Callable[..., Any]) -> None:
    mod = agrees(function, X)
    assert "relax.where" in operators(mod)


def test_what_has_no_counterpart_is_refused() -> None:
    source = random(2, 8, 4, 5)
    index = torch.zeros(2, 8, 4, 5, dtype=torch.long)
    exported = program(lambda x: x.scatter_reduce(1, index, source, "mean"), X)
    with pytest.raises(ModelImportError, match=r"node 'scatter_reduce' \(scatter_reduce\.two\) has a form that has no"):
        from_torch(exported)


def test_the_table_is_in_order() -> None:
    assert list(REPAIRS) == sorted(REPAIRS)
