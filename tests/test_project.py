"""What is written down in several places says the same in all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import tvm

from relax_glue import passes
from relax_glue.pipeline import FAMILIES, LEGALITY, OFF_BY_DEFAULT, PIPELINE, TRANSFORMS
from relax_glue.rewrite import EXACT, FLOAT_REASSOC, FOLD, MOTION, NAN_SENSITIVE, REWRITE, Rule

ROOT = Path(__file__).resolve().parents[1]
RULES = [rule for rules in FAMILIES.values() for rule in rules]


def script(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a script as Python runs it: with its folder among those that are searched."""
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = ("latency.md", "layers.md", "left_out.md", "rules.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = script(ROOT / "docs" / "generate.py", monkeypatch)
    assert sorted(generate.PAGES) == sorted(PAGES)
    assert (ROOT / "docs" / page).read_text() == generate.PAGES[page](), "run python docs/generate.py"


def numbers(source: str) -> set[str]:
    """Return the numbers of the catalogue in a source, "S05 to S07" and lists written out."""
    found = set(re.findall(r"\b[A-Z]\d\d\b", source))
    for letter, first, last in re.findall(r"\b([A-Z])(\d\d) to [A-Z]?(\d\d)", source):
        found |= {f"{letter}{k:02}" for k in range(int(first), int(last) + 1)}
    return found


def catalogue() -> dict[str, str]:
    """Return the rows of the catalogue by their numbers."""
    page = (ROOT / "docs" / "catalogue.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\d\d) \| (.*) \|$", page, re.MULTILINE)
    assert len(dict(rows)) == len(rows), "a number has two rows"
    return dict(rows)


def test_the_catalogue_names_what_there_is() -> None:
    rows = catalogue()
    transforms = [t for found in TRANSFORMS.values() for t in found]
    known = {r.name for r in (*RULES, *transforms)}
    for number, row in rows.items():
        named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", row))
        assert named <= known, f"{number}: {sorted(named - known)}"
        passes_named = set(re.findall(r"`([A-Z][A-Za-z]+)`", row))
        assert passes_named <= {*FAMILIES, *TRANSFORMS}, f"{number}: {sorted(passes_named)}"
    for rule in RULES:
        for number in numbers(rule.source) & rows.keys():
            assert f"`{rule.name}`" in rows[number], f"{number} does not name {rule.name}, whose source it is"


def test_the_catalogue_cites_what_was_measured() -> None:
    rows = catalogue()
    measured = json.loads((ROOT / "benchmarks" / "results" / "h200_left_out.json").read_text())["cases"]
    for case in measured:
        for number in numbers(case["rule"]):
            assert "(left_out.md)" in rows[number], f"{number} does not say what was measured of it"
    names = {rule.name for rule in RULES}
    assert {case["built"] for case in measured} - {""} <= names


def test_the_catalogue_has_every_rule_that_was_to_be_built(shared: Path) -> None:
    wanted = (shared / "reference" / "rules.md").read_text()
    entries = re.findall(r"\*\*([A-Z]\d\d) [^*]*\*\*(?: \[([^\]]*)\])?", wanted)
    assert len(entries) > 200
    missing = [n for n, letter in entries if not letter.startswith(("C", "X")) and n not in catalogue()]
    assert not missing
    cited = {n for rule in RULES for n in numbers(rule.source)}
    assert cited <= {n for n, _ in entries} and cited <= catalogue().keys()


def test_every_package_is_installed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "relax_glue").rglob("__init__.py")}
    assert listed == found | {"relax_glue.passes"}


def test_every_family_of_the_pipeline_is_a_pass_and_the_other_way_round() -> None:
    in_pipeline = {name for step in PIPELINE for name in step.passes}
    # MergeRegions works on modules that are partitioned, LiftBranches on what TVM is about to compile
    assert set(passes.__all__) - {"MergeRegions", "LiftBranches"} == in_pipeline
    assert all(isinstance(getattr(passes, name)(), tvm.transform.Pass) for name in passes.__all__)


def test_every_pass_of_the_pipeline_tells_what_it_does() -> None:
    in_pipeline = {name for step in PIPELINE for name in step.passes}
    assert in_pipeline == {*FAMILIES, *TRANSFORMS}
    transforms = [t for found in TRANSFORMS.values() for t in found]
    assert len({t.name for t in transforms}) == len(transforms)
    assert all("->" in t.equation and t.guards and t.purpose and t.source for t in transforms)
    assert {*in_pipeline, *(r.name for r in RULES)} >= LEGALITY and in_pipeline >= OFF_BY_DEFAULT


def test_rules_have_one_name_each() -> None:
    by_name: dict[str, Rule] = {}
    for rule in RULES:
        assert by_name.setdefault(rule.name, rule) is rule, f"{rule.name} names two rules"


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_says_what_it_is(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert "->" in rule.equation and rule.source
    assert rule.apply.__doc__, "a sentence that says what it is for"
    assert rule.soundness in (EXACT, FLOAT_REASSOC, NAN_SENSITIVE) and rule.kind in (FOLD, REWRITE, MOTION)
    operators = set(map(str, tvm.ir.Op.list_op_names())) | {"match_cast"}
    assert set(rule.roots) <= operators, sorted(set(rule.roots) - operators)
    assert set(rule.producers) <= operators | {"constant", "input"}


def test_no_file_is_too_long_to_read() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for folder in ("relax_glue", "passes")
        for p in (ROOT / folder).rglob("*.py")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long
