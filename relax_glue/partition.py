"""The partition of a module: which calls go to TensorRT, in which regions, and why the others do not.

Region functions have the form that `RunCodegen` and TVM's own TensorRT backend expect: a function with the
attributes Codegen = "tensorrt" and global_symbol, whose body calls one local function per operator with the
attribute Composite = "tensorrt.<operator>".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import tvm
from tvm import relax, tirx

from .data_extents import data_extent_refusal, data_extents
from .errors import OffloadError, UnknownNameError
from .ir import Graph, Node, map_blocks, map_functions, read_block, write_block
from .region_function import composite_ops, is_region, make_region, region_functions
from .region_graph import block_costs, dependency_graph, is_operator, make_copies, route_inputs
from .regions import Costs, find_regions
from .report import Outside, RegionSummary, Report, counted
from .tensorrt.converters import REGISTRY
from .tensorrt.profiles import with_bounds
from .tensorrt.registry import Refusal, Registry
from .validate import as_names

Predicate = Callable[[relax.Call, str], bool]


@dataclass(frozen=True)
class PartitionOptions:
    """What the user asks of a partition.

    Attributes
    ----------
    exclude_ops : collection of str
        Operators to keep with TVM, with or without the prefix "relax.".
    exclude_names : collection of str
        Bindings to keep with TVM, by the names of their variables.
    exclude : Callable, optional
        `exclude(call, name)` returns True for a call to keep with TVM.
    min_region_ops : int
        A region needs as many operators that compute (do more than move data, cast it, or compute indices or one
        number), unless it is all there is; with 0 every region is worth an engine.
    require_full_offload : bool
        Raise OffloadError when an operator stays outside.
    """

    exclude_ops: Collection[str] = ()
    exclude_names: Collection[str] = ()
    exclude: Predicate | None = None
    min_region_ops: int = 1
    require_full_offload: bool = False
    registry: Registry = field(default=REGISTRY, repr=False)

    def __post_init__(self) -> None:
        for given in ("exclude_ops", "exclude_names"):
            object.__setattr__(self, given, as_names(given, getattr(self, given)))
        if self.exclude is not None and not callable(self.exclude):
            raise TypeError(f"exclude={self.exclude!r}: give a function of a call and the name of its binding")
        if not isinstance(self.min_region_ops, int):
            raise TypeError(f"min_region_ops={self.min_region_ops!r}: give a number of operators")

    @staticmethod
    def of(values: Mapping[str, Any]) -> PartitionOptions:
        """Make options of keyword arguments.

        Raises
        ------
        TypeError
            One is no option.
        """
        known = [f.name for f in fields(PartitionOptions) if f.name != "registry"]
        for unknown in sorted(set(values) - {*known, "registry"}):
            raise TypeError(f"there is no option {unknown!r}; to partition there are {', '.join(known)}")
        return PartitionOptions(**values)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The full names of the excluded operators.

        Raises
        ------
        UnknownNameError
            There is no such operator.
        """
        return frozenset(map(_operator_name, self.exclude_ops))

    def refusal(self, node: Node) -> Refusal | None:
        """Return why a node stays outside by the user's wish, or None."""
        if node.op in self.operators:
            return Refusal(f"{node.op} is excluded by exclude_ops", "take it out of exclude_ops")
        if node.name in self.exclude_names:
            return Refusal(f"{node.name} is excluded by exclude_names", "take it out of exclude_names")
        if self.exclude is not None and self.exclude(node.expr, node.name):
            return Refusal("the exclude predicate says so", "change the predicate")
        return None


def _operator_name(name: str) -> str:
    full = name if name.startswith("relax.") else f"relax.{name}"
    if full not in _operators():
        raise UnknownNameError(
            f"exclude_ops names {name!r}, which is no Relax operator; try a name such as 'nn.conv2d'"
        )
    return full


def _operators() -> frozenset[str]:
    return frozenset(str(n) for n in tvm.ir.Op.list_op_names())


def partition_with_report(mod: tvm.IRModule, options: PartitionOptions | None = None) -> tuple[tvm.IRModule, Report]:
    """Move what TensorRT can express into region functions.

    Parameters
    ----------
    mod : tvm.IRModule
        Any well-formed module; it is not changed. Every dataflow block of every open Relax function is
        partitioned by itself. Functions that carry Codegen already are kept, and calls to them stay.
    options : PartitionOptions, optional
        What to keep outside, and what a region must be worth.

    Returns
    -------
    mod : tvm.IRModule
        With the region functions added.
    report : Report
        The regions, and what stayed outside with the reasons.

    Raises
    ------
    UnknownNameError
        An option names an operator or a binding that does not exist.
    OffloadError
        Full offload was required and an operator has to stay outside.
    """
    run = _Partitioner(mod, options or PartitionOptions())
    result = run.run()
    if run.options.require_full_offload and run.report.outside:
        raise OffloadError(f"full offload was required, but {_listing(run.report.outside)}")
    return result, run.report


def _listing(outside: Sequence[Outside]) -> str:
    shown = "; ".join(f"{o.op} ({o.name} in {o.function}): {o.reason}" for o in outside[:5])
    more = f"; and {len(outside) - 5} more" if len(outside) > 5 else ""
    return f"{counted(len(outside), 'operator')} cannot go to TensorRT: {shown}{more}"


def _existing_regions(mod: tvm.IRModule) -> list[RegionSummary]:
    """Summarise the regions that a module has already, each at the function that calls it."""
    found = []
    regions = region_functions(mod)
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or is_region(func):
            continue
        for called in sorted(v.name_hint for v in relax.analysis.all_global_vars(func)):
            if called in regions:
                ops = composite_ops(regions[called])
                found.append(RegionSummary.from_ops(called, var.name_hint, ops, regions[called]))
    return found


class _Partitioner:
    """Partitions one module; collects the region functions and the report."""

    def __init__(self, mod: tvm.IRModule, options: PartitionOptions):
        self.mod = mod
        self.options = options
        self.names: set[str] = {v.name_hint for v in mod.get_global_vars()}
        self.added: list[tuple[tvm.ir.GlobalVar, relax.Function]] = []
        self.report = Report(_existing_regions(mod), [])
        self.function = ""
        self.callers: list[relax.Function] = []
        self.data_extents: dict[tirx.Var, str] = {}
        self.numbers: dict[str, int] = {}
        self.seen_names: set[str] = set()
        _ = options.operators  # an unknown operator is an error even where nothing would be excluded

    def run(self) -> tvm.IRModule:
        result = map_functions(self.mod, self._function)
        self._check_names()
        if not self.added:
            return result
        result = result.clone()
        for var, func in self.added:
            result.update_func(var, func)
        return result

    def _function(self, var: tvm.ir.GlobalVar, func: relax.Function) -> relax.Function:
        self.function = var.name_hint
        self.callers = [func]
        self.data_extents = data_extents(func)
        new = map_blocks(func, self._block)
        self.report.outside.extend(_outside_blocks(func, self.function))
        return new

    def _check_names(self) -> None:
        for name in self.options.exclude_names:
            if name not in self.seen_names:
                raise UnknownNameError(
                    f"exclude_names names {name!r}, and no binding of the module is called that; names are those left "
                    "after the rules, which relax_glue.canonicalize(mod) shows"
                )

    def _block(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        graph = read_block(block)
        graph.sweep()
        self.seen_names.update(node.name for node in graph if node.name)
        operators = [n for n in graph if self._is_work(n)]
        refusals = {n: r for n in operators if (r := self._refusal(n)) is not None}
        accepted = frozenset(operators) - frozenset(refusals)
        costs = block_costs(graph, self.options.registry)
        found = find_regions(
            dependency_graph(graph),
            accepted.__contains__,
            lambda nodes: self._poor(nodes, len(operators), costs),
            costs,
        )
        for node, why in found.dropped.items():
            refusals[node] = Refusal(why, "lower min_region_ops if it should be offloaded all the same")
        self._report_outside(sorted(refusals, key=lambda n: n.order), refusals)
        regions = route_inputs(graph, make_copies(graph, found))
        if not found.of:
            return block
        self._extract(graph, regions)
        return write_block(graph)

    def _is_work(self, node: Node) -> bool:
        """Return whether a node is work: a call of a region that was there before is done already."""
        if node.op == "relax.shape_to_tensor":
            return self._feeds_operators(node)
        return is_operator(node) and not (node.op == "call" and is_region(self._callee(node)))

    def _feeds_operators(self, node: Node) -> bool:
        """Return whether the numbers of a shape are read by nothing but operators that TensorRT takes.

        Then they are computed where these are; else TVM has them on the host, for operators on shapes.
        """
        readers = list(node.users)
        return bool(readers) and all(map(is_operator, readers)) and not any(map(self._refusal, (node, *readers)))

    def _callee(self, node: Node) -> object:
        callee = node.expr.op
        return self.mod.functions.get(callee) if isinstance(callee, tvm.ir.GlobalVar) else None

    def _refusal(self, node: Node) -> Refusal | None:
        by_wish = self.options.refusal(node)
        return by_wish or data_extent_refusal(node, self.data_extents) or self.options.registry.accepts(node.expr)

    def _poor(self, nodes: list[Node], everything: int, costs: Costs[Node]) -> str | None:
        """Return why a region is not worth an engine, or None."""
        computing = sum(1 for n in nodes if not costs.cheap(n))
        if len(nodes) == everything or self.options.min_region_ops < 1:
            return None
        if not computing:
            what = "only move data, cast it, or compute indices or one number"
            return f"a region of {counted(len(nodes), 'operator')} that {what} is not worth an engine"
        if computing >= self.options.min_region_ops:
            return None
        return f"a region with {computing} computing operators is below min_region_ops = {self.options.min_region_ops}"

    def _report_outside(self, nodes: Iterable[Node], refusals: dict[Node, Refusal]) -> None:
        for node in nodes:
            why = refusals[node]
            self.report.outside.append(Outside(_label(node), node.name, self.function, why.reason, why.hint))

    def _extract(self, graph: Graph, regions: dict[Node, int]) -> None:
        groups: dict[int, list[Node]] = {}
        for node, number in regions.items():
            groups.setdefault(number, []).append(node)
        for number in sorted(groups):
            nodes = sorted(groups[number], key=lambda n: n.order)
            var, func = make_region(graph, nodes, self._fresh_name())
            self.added.append((var, with_bounds(func, self.callers)))
            self.report.regions.append(RegionSummary.of(var.name_hint, self.function, nodes, func))

    def _fresh_name(self) -> str:
        number = self.numbers.get(self.function, 0)
        while (name := f"{self.function}_tensorrt_{number}") in self.names:
            number += 1
        self.names.add(name)
        self.numbers[self.function] = number + 1
        return name


def _label(node: Node) -> str:
    if node.op != "call":
        return node.op
    callee = node.expr.op
    return f"call of {getattr(callee, 'name_hint', None) or getattr(callee, 'global_symbol', None) or callee}"


def _outside_blocks(func: relax.Function, name: str) -> list[Outside]:
    """Report the calls that stand in no dataflow block."""
    found: list[Outside] = []
    if isinstance(func.body, relax.SeqExpr):
        _walk(func.body, name, found)
    return found


def _walk(seq: relax.SeqExpr, function: str, found: list[Outside]) -> None:
    for block in seq.blocks:
        if isinstance(block, relax.DataflowBlock):
            continue
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.If):
                _walk(value.true_branch, function, found)
                _walk(value.false_branch, function, found)
            elif isinstance(value, relax.Call):
                op = getattr(value.op, "name", None) or f"call of {getattr(value.op, 'name_hint', value.op)}"
                reason = "it stands outside every dataflow block: impure, or code that must keep its order"
                hint = "where it is pure, relax_glue.passes.ConvertToDataflow makes a block of it, as optimize does"
                found.append(Outside(str(op), binding.var.name, function, reason, hint))
