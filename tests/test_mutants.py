"""The mutants of ``python -m tests.mutants``."""

from tests.mutants import list_mutants

SOURCE = '''"""Docstring 1."""
LIMIT: int = 3


def f(x: int | None = 2) -> bool:
    if x < LIMIT and not x:
        raise ValueError(f"{x + 1} is too small" if x > 5 else "é")
    return g("é", max(x, 7), key=True)
'''


def test_mutants_change_one_expression_and_no_text_or_type():
    changes = [(mutant.old, mutant.new) for mutant in list_mutants("m.py", SOURCE)]
    condition = "x < LIMIT and not x"
    assert changes == [
        *[("3", "(4)"), ("3", "(2)"), ("2", "(3)"), ("2", "(1)")],
        *[(condition, new) for new in ("(True)", "(False)", "(not (x < LIMIT and (not x)))")],
        *[(condition, new) for new in ("((x < LIMIT) or (not x))", "((not x))", "((x < LIMIT))")],
        *[("x < LIMIT", new) for new in ("((x) <= (LIMIT))", "((x) >= (LIMIT))")],
        ("not x", "((x))"),
        ('return g("é", max(x, 7), key=True)', 'return not (g("é", max(x, 7), key=True))'),
        ('g("é", max(x, 7), key=True)', "(g('é', max(x, 7)))"),
        ("max(x, 7)", "(min(x, 7))"),
        *[("7", "(8)"), ("7", "(6)"), ("True", "(False)")],
    ]


def test_a_mutant_replaces_the_text_at_its_place():
    (mutant,) = [mutant for mutant in list_mutants("m.py", SOURCE) if mutant.new == "(min(x, 7))"]
    assert mutant.apply(SOURCE) == SOURCE.replace("max(x, 7)", "(min(x, 7))")
    assert (mutant.scope, mutant.line) == ("f", 8)
