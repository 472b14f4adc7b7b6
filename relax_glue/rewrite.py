"""Rules, and the driver that applies them.

A `Rule` is small and frozen: the operators at its root, its equation in one line, how sound it is, which operands
must have no other user, and `apply`, which returns a replacement or a `Decline` with the reason. It decides
everything before it builds anything. A `RuleSet` is a tuple of rules; sets are joined with `+` and rules are
left out by name.

The driver is a worklist: a node is looked at again when an operand of it changed or when a producer lost a user.
It stops two rules that undo each other with an error that names both.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from .errors import RewriteError, UnknownNameError
from .ir import Graph, Node, Value, same_shape
from .trace import RewriteLog, described
from .validate import as_names

EXACT = "exact"  # the same bits for every input
FLOAT_REASSOC = "float_reassoc"  # float arithmetic in another order: the last bits or the sign of a 0 may differ
NAN_SENSITIVE = "nan_sensitive"  # another result for NaN, infinities or signed zeros: never on unless asked for

DEFAULT_SOUNDNESS = (EXACT, FLOAT_REASSOC)


def check_soundness(soundness: str | Iterable[str]) -> tuple[str, ...]:
    """Return the soundness classes asked for.

    Raises
    ------
    UnknownNameError
        There is no such class.
    """
    classes = as_names("soundness", soundness)
    known = (EXACT, FLOAT_REASSOC, NAN_SENSITIVE)
    for unknown in sorted(set(classes) - set(known)):
        raise UnknownNameError(f"soundness names {unknown!r}; the classes are {', '.join(known)}")
    return classes


FOLD = "fold"  # builds nothing that was not there
REWRITE = "rewrite"  # builds something
MOTION = "motion"  # pays only if the cluster it touches gets cheaper


@dataclass(frozen=True, slots=True)
class Decline:
    """Why a rule leaves a node alone."""

    reason: str


Replacement = Value | Sequence[Value | None]
Apply = Callable[[Node, Graph], "Replacement | Decline"]


@dataclass(frozen=True)
class Rule:
    """One rewrite.

    Attributes
    ----------
    name : str
        Unique, in kebab-case, named after what it does.
    roots : tuple[str, ...]
        The operators at its root.
    equation : str
        What becomes of what, in one line.
    apply : Callable
        `apply(node, graph)` returns the value that replaces the node's result, one value for each item of a
        tuple result (None for an item that stays), or a `Decline`.
    soundness : str
        EXACT, FLOAT_REASSOC or NAN_SENSITIVE.
    kind : str
        FOLD, REWRITE or MOTION.
    producers : tuple[str, ...]
        If given, the rule is tried only where the first operand comes from one of these operators.
    single_use : tuple[int, ...]
        The operands whose producers must have no other use; the driver checks it.
    source : str
        Where the idea comes from, and its number in the project's rule catalogue.
    """

    name: str
    roots: tuple[str, ...]
    equation: str
    apply: Apply
    soundness: str = EXACT
    kind: str = REWRITE
    producers: tuple[str, ...] = ()
    single_use: tuple[int, ...] = ()
    source: str = ""


def rule(
    name: str,
    *roots: str,
    equation: str,
    soundness: str = EXACT,
    kind: str = REWRITE,
    producers: Sequence[str] = (),
    single_use: Sequence[int] = (),
    source: str = "",
) -> Callable[[Apply], Rule]:
    """Make a `Rule` of the decorated function; its arguments are the attributes of `Rule`."""

    def wrap(apply: Apply) -> Rule:
        return Rule(name, roots, equation, apply, soundness, kind, tuple(producers), tuple(single_use), source)

    return wrap


@dataclass(frozen=True)
class RuleSet:
    """Rules in the order in which they are tried."""

    rules: tuple[Rule, ...] = ()

    @staticmethod
    def of(*rules: Rule) -> RuleSet:
        """Make a set of rules; two of one name are an error."""
        names = [r.name for r in rules]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise ValueError(f"two rules are called {sorted(twice)[0]!r}")
        return RuleSet(tuple(rules))

    def __add__(self, other: RuleSet) -> RuleSet:
        names = {r.name for r in self.rules}
        return RuleSet.of(*self.rules, *(r for r in other.rules if r.name not in names))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def without(self, names: Iterable[str]) -> RuleSet:
        """Return the set without the rules named; names that are in no rule are ignored here."""
        left_out = set(names)
        return RuleSet(tuple(r for r in self.rules if r.name not in left_out))

    def sound(self, *classes: str) -> RuleSet:
        """Return the rules of the soundness classes named."""
        return RuleSet(tuple(r for r in self.rules if r.soundness in classes))

    def named(self, name: str) -> Rule:
        """Return a rule by name."""
        for found in self.rules:
            if found.name == name:
                return found
        raise UnknownNameError(f"no rule is called {name!r}; there are: {', '.join(r.name for r in self.rules)}")


@dataclass
class RuleCount:
    """What one rule did in one run."""

    tried: int = 0
    fired: int = 0
    seconds: float = 0.0
    declined: dict[str, int] = field(default_factory=dict)


@dataclass
class RewriteStats:
    """What the rules did, by name.

    Attributes
    ----------
    rules : dict[str, RuleCount]
        What each rule that was tried did.
    log : RewriteLog, optional
        Where to write down each rewrite and each decline with its place.
    """

    rules: dict[str, RuleCount] = field(default_factory=dict)
    log: RewriteLog | None = None

    @property
    def fired(self) -> int:
        """How many rewrites were made."""
        return sum(c.fired for c in self.rules.values())

    def of(self, name: str) -> RuleCount:
        """Return the count of a rule, which is made on first use."""
        count = self.rules.get(name)
        if count is None:
            count = self.rules[name] = RuleCount()
        return count


class _Driver:
    """One run over one graph."""

    def __init__(self, graph: Graph, rules: RuleSet, stats: RewriteStats, limit: int):
        self.graph = graph
        self.stats = stats
        self.log = stats.log
        self.limit = limit
        self.fired = 0
        self.by_root: dict[str, list[Rule]] = {}
        for r in rules:
            for root in r.roots:
                self.by_root.setdefault(root, []).append(r)
        self.queue: deque[Node] = deque()
        self.queued: set[Node] = set()

    def push(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.op in self.by_root and node not in self.queued:
                self.queued.add(node)
                self.queue.append(node)

    def run(self) -> int:
        self.graph.sweep()  # a dead binding would count as a user and make single-use rules decline
        fired = -1
        while fired != self.fired:
            # a rule may look further than the neighbours that a commit queues again: go on until a whole
            # round fires nothing, so that a second run of the pass finds nothing either
            fired = self.fired
            if self.log is not None:
                self.log.begin((r.name for rules in self.by_root.values() for r in rules), self.graph.place)
            self.push(sorted(self.graph, key=lambda n: n.order))
            self._drain()
        return self.fired

    def _drain(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self.queued.discard(node)
            if node in self.graph and self.graph.is_used(node):
                self._visit(node)

    def _visit(self, node: Node) -> None:
        for r in self.by_root[node.op]:
            if r.producers and not (node.inputs and node.inputs[0].op in r.producers):
                if self.log is not None:
                    self.log.declined(r.name, node, _other_producer(r, node), self.graph.place)
                continue
            changes = self._try(r, node)
            if changes:
                self._commit(r, node, changes)
                return

    def _try(self, r: Rule, node: Node) -> list[tuple[Value, Value]]:
        """Return what the rule replaces by what; nothing where it declines."""
        count = self.stats.of(r.name)
        count.tried += 1
        started = time.perf_counter()
        result = self._apply(r, node)
        changes = [] if isinstance(result, Decline) else self._changes(node, result)
        count.seconds += time.perf_counter() - started
        if changes:
            count.fired += 1
            return changes
        reason = result.reason if isinstance(result, Decline) else "nothing uses what it replaces"
        count.declined[reason] = count.declined.get(reason, 0) + 1
        if self.log is not None:
            self.log.declined(r.name, node, reason, self.graph.place)
        return []

    def _apply(self, r: Rule, node: Node) -> Replacement | Decline:
        for operand in r.single_use:
            if operand < len(node.inputs) and not self.graph.single_use(node.inputs[operand]):
                return Decline(f"operand {operand} has other users")
        self.graph.at = node
        try:
            return r.apply(node, self.graph)
        except RewriteError as error:
            raise RewriteError(f"rule {r.name!r} at {node!r}: {error}") from error
        finally:
            self.graph.at = None

    def _changes(self, node: Node, result: Replacement) -> list[tuple[Value, Value]]:
        """Pair the values of a node that have users with what replaces them."""
        if isinstance(result, Value):
            return [(node.value, result)]
        if not isinstance(node.ty, relax.TupleType):
            return [(node.value, new) for new in result if new is not None]
        pairs = [(Value(node, k), new) for k, new in enumerate(result) if new is not None]
        used = [(old, new) for old, new in pairs if self.graph.uses_of(old)]
        # split(constant) whose whole tuple is a result: its items alone would leave the split there for ever
        if len(pairs) == len(result) and self.graph.uses_of(node.value):
            used.append((node.value, self.graph.pack([new for _, new in pairs], node)))
        return used

    def _commit(self, r: Rule, node: Node, changes: Sequence[tuple[Value, Value]]) -> None:
        self.fired += 1
        if self.log is not None:
            self.log.fired(r.name, node, [described(new, node) for _, new in changes], self.graph.place)
        changed: list[Node] = []
        for old, new in changes:
            _check_type(r, node, old, new)
            self._check_progress(r, node, new)
            changed += [new.node, *(v.node for v in new.node.inputs), *self.graph.replace(old, new)]
            changed += [n for v in new.node.inputs for n in _few_users(v.node)]
        touched = self.graph.drop_dead(node)
        # a producer that lost a user may now be single-use: its other users can match
        changed += touched + [user for n in touched for user in _few_users(n)]
        self.push(n for n in dict.fromkeys(changed) if n in self.graph)

    def _check_progress(self, r: Rule, node: Node, new: Value) -> None:
        made = new.node
        if not made.origin:
            made.origin = r.name
        mark = _fingerprint(made)
        for earlier, by in node.history:
            if earlier == mark:
                raise RewriteError(f"rules {by!r} and {r.name!r} undo each other at {node!r}; leave one of them out")
        made.history = (*node.history, (_fingerprint(node), r.name))[-_HISTORY:]
        if self.fired > self.limit:
            raise RewriteError(
                f"{self.fired} rewrites of {len(self.graph)} nodes and no end: the last rules were "
                f"{', '.join(repr(by) for _, by in made.history[-3:])} at {node!r}; leave one of them out"
            )


def _other_producer(r: Rule, node: Node) -> str:
    """Say that the first operand comes from none of the operators that a rule asks for."""
    named = [p.removeprefix("relax.") for p in r.producers]
    wanted = ", ".join(named) if len(named) <= _FEW else f"the {len(named)} operators that it looks for"
    found = node.inputs[0].op.removeprefix("relax.") if node.inputs else "nothing"
    return f"operand 0 comes from {found}, not from {wanted}"


def _few_users(node: Node) -> Iterable[Node]:
    """Return the users of a node, or none where there are many.

    Looking at every user of a node at each change of one is quadratic where a thousand share it; what may match now
    is found when the whole graph is looked at once more.
    """
    return node.users if len(node.users) <= _FEW else ()


_FEW = 16
_HISTORY = 16
_DEPTH = 4


def _fingerprint(node: Node, depth: int = _DEPTH) -> Any:
    """Return what a node is made of; nodes that were read, or lie deep, stand for themselves.

    Only nodes that rules made are opened: when two rules undo each other, the second round makes what the
    first round made.
    """
    if not node.origin or depth == 0:
        return id(node)
    what = node.view if node.view is not None else str(node.attrs)
    return node.op, _hashable(what), tuple((_fingerprint(v.node, depth - 1), v.index) for v in node.inputs)


def _hashable(view: Any) -> str:
    return repr(view)


def _check_type(r: Rule, node: Node, old: Value, new: Value) -> None:
    """A rule may not change what it replaces."""
    if old.dtype == new.dtype and (same_shape(old.shape, new.shape) or old.shape is None):
        return
    raise RewriteError(f"rule {r.name!r} at {node!r} would change its type from {old.ty} to {new.ty}")


def rewrite(graph: Graph, rules: RuleSet, stats: RewriteStats | None = None) -> int:
    """Apply rules to a graph until none fires.

    Parameters
    ----------
    graph : Graph
        It is changed in place.
    rules : RuleSet
        Tried at each node in their order.
    stats : RewriteStats, optional
        Where to count what each rule tried, did and declined.

    Returns
    -------
    fired : int
        How many rewrites were made.

    Raises
    ------
    RewriteError
        A rule changes a type, or rules go on without end.
    """
    limit = 1000 + 40 * len(graph)
    return _Driver(graph, rules, stats if stats is not None else RewriteStats(), limit).run()
