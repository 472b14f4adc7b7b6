"""Random glue modules for hypothesis, and a check that two modules are the same function.

For the tests of any pass over Relax, not only of those here::

    @given(modules())
    def test_my_pass(case):
        check_pass(MyPass(), case)

`equivalence` compares, `strategies` draws; `operators`, `indexing`, `arithmetic` and `idioms` hold what is
drawn, `graph` what they draw it into.
"""

from __future__ import annotations

from relax_glue.testing.case import Case
from relax_glue.testing.equivalence import (
    NotEquivalentError,
    Pair,
    check_equivalent,
    check_many,
    check_pass,
    check_signature,
    difference,
    evaluate,
)
from relax_glue.testing.strategies import DTYPES, fuzz_examples, modules

__all__ = [
    "DTYPES",
    "Case",
    "NotEquivalentError",
    "Pair",
    "check_equivalent",
    "check_many",
    "check_pass",
    "check_signature",
    "difference",
    "evaluate",
    "fuzz_examples",
    "modules",
]
