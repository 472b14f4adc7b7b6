"""Each rule alone on random instances: 200 on which it fires in a plain run, more by RELAX_GLUE_FUZZ=<number>.

Numpy says of most of them that nothing changed; what it does not know, or sees differ, LLVM decides, and one in sixteen
anyway. A rule for which nothing is drawn fails, and so does one that hardly fires on what is drawn for it.
"""

from __future__ import annotations

import pytest
from rule_case import RULES, check_rule
from rule_instances import DRAWERS

from relax_glue.testing import fuzz_examples

FIRINGS = fuzz_examples(200)
NO_NEAR_MISS = ("broadcast-of-broadcast", "where-not")  # they take whatever has their root on their producer


def test_every_rule_has_instances() -> None:
    assert set(DRAWERS) == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_rule(name: str) -> None:
    tally = check_rule(name, FIRINGS)
    assert tally.fired == FIRINGS
    assert tally.reasons or name in NO_NEAR_MISS, "nothing was drawn that the rule has to decline"
