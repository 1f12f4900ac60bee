"""Change single lines of the package at random, and list the changes that no test notices.

``python -m tests.mutants --count 200 --seed 0`` works on a copy of the repository in ``--folder``:

1. It runs the default tests once and stores the tests that execute each line (about ten minutes). Later calls run only
   changed test files again, or all of them after a change of the package.
2. It samples mutants: ``<`` becomes ``<=``, an argument is removed, and so on. Strings, messages and annotations stay.
   A change of the package does not change the sample of the other mutants.
3. One forked process for each mutant runs the tests of its line until one fails: first those of the module and fast
   ones, then all tests of the same files, for about a minute.
4. Results are appended to ``results-SEED.jsonl``. A call skips mutants with a result; ``--again`` repeats survivors.
"""

import argparse
import ast
import collections
import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PATHS = ("statistics", "analysis", "comparison", "runs", "images", "networks", "experiments", "data/subsets.py")
#: Libraries that are imported once, before processes are forked.
LIBRARIES = "torchvision lightning timm torchmetrics scipy.stats scipy.optimize pandas matplotlib.figure jsonargparse \
sklearn.linear_model statsmodels.api rich jinja2 beartype jaxtyping pytest coverage"
#: Largest duration of all tests of a mutant, in seconds.
MAX_SECONDS = 60.0

COMPARISONS = {ast.Lt: ("<", "<=", ">="), ast.LtE: ("<=", "<", ">"), ast.Gt: (">", ">=", "<="), ast.GtE: (">=", ">")}
COMPARISONS |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")}
COMPARISONS |= {ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "*", ast.Pow: "*"}
OPERATORS |= {ast.BitAnd: "|", ast.BitOr: "&"}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
FUNCTIONS |= {"argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor", "sorted": "list"}
#: Calls whose arguments are texts or types.
TEXTS = {"print", "warn", "info", "warning", "cast", "Literal"}
UNCHANGED = (ast.JoinedStr, ast.Assert, ast.Raise, ast.Import, ast.ImportFrom)


def replacements(node: ast.AST, source: str, returns: str) -> Iterator[str]:
    """Texts that replace an expression or a statement in a function with this return type."""

    def text(part: ast.AST) -> str:
        return f"({ast.get_source_segment(source, part)})"

    match node:
        case ast.Compare(left=left, ops=ops, comparators=sides):
            for place, changed in enumerate(ops):
                for symbol in COMPARISONS[type(changed)][1:]:
                    symbols = [COMPARISONS[type(op)][0] for op in ops]
                    symbols[place] = symbol
                    yield text(left) + "".join(f" {one} {text(side)}" for one, side in zip(symbols, sides, strict=True))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            if not any(isinstance(part, ast.JoinedStr) or is_text(part) for part in (left, right)):
                yield f"{text(left)} {OPERATORS[type(op)]} {text(right)}"
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in OPERATORS:
            if not (isinstance(value, ast.JoinedStr) or is_text(value)):
                yield f"{ast.unparse(target)} {OPERATORS[type(op)]}= {text(value)}"
        case ast.BoolOp(op=op, values=values):
            words = [" or ", " and "] if isinstance(op, ast.And) else [" and ", " or "]
            yield words[0].join(map(text, values))
            for left_out in values:
                yield words[1].join(text(value) for value in values if value is not left_out)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield text(operand)
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield from (str(value + 1), str(value - 1)) if value < 100 else (str(2 * value), str(value // 2))
        case ast.Constant(value=float(value)):
            yield from (str(2 * value), str(value / 2))
        case ast.IfExp(body=body, orelse=other):
            yield from (text(body), text(other))
        case ast.Call(func=function, args=args, keywords=keywords):
            name, called = called_name(node), ast.unparse(function)
            if name in FUNCTIONS:
                given = ", ".join(ast.unparse(part) for part in (*args, *keywords) if name != "sorted" or part in args)
                yield f"{called[: -len(name)]}{FUNCTIONS[name]}({given})"
            if name == "abs" and args:
                yield text(args[0])
            for removed in keywords:
                rest = ", ".join(ast.unparse(part) for part in (*args, *keywords) if part is not removed)
                yield f"{called}({rest})"
        case ast.Return(value=ast.expr() as value) if "None" in returns.replace(" ", "").split("|"):
            yield "return None"
        case ast.Return(value=ast.expr() as value) if returns == "bool":
            yield f"return not {text(value)}"
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            yield "pass"


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def called_name(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def assigned_names(statement: ast.stmt) -> frozenset[str]:
    targets = [*getattr(statement, "targets", []), getattr(statement, "target", None)]
    return frozenset(node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name))


def used_names(node: ast.AST) -> set[str]:
    return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}


@dataclass(frozen=True)
class Mutant:
    """A change of a source file.

    Arguments:
        scope: qualified name of the function or class; empty for a statement of the module.
        lines: lines whose tests execute the change: of its statement, or the body of the function of a default.
        assigned: names that a statement outside of functions assigns.
        start, end: range of the replaced characters.
        number: number of equal changes before it in the same scope.
    """

    path: str
    scope: str
    line: int
    lines: tuple[int, ...]
    assigned: frozenset[str]
    start: int
    end: int
    old: str
    new: str
    number: int = 0

    @property
    def key(self) -> str:
        """Identity that does not depend on other parts of the file."""
        return f"{self.path} {self.scope}: {self.old} -> {self.new} #{self.number}"

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def list_mutants(path: str, source: str) -> list[Mutant]:
    """List all mutants of a source file."""
    rows = source.splitlines(keepends=True)
    mutants: list[Mutant] = []
    numbers: collections.Counter[tuple[str, ...]] = collections.Counter()

    def offset(line: int, column: int) -> int:
        return sum(map(len, rows[: line - 1])) + len(rows[line - 1].encode()[:column].decode())

    def add(node: Any, new: str, scope: tuple[str, ...], statement: Any, function: Any) -> None:
        first = statement.body[0].lineno if hasattr(statement, "body") else statement.end_lineno + 1
        lines = range(statement.lineno, max(first, statement.lineno + 1))
        is_default = isinstance(statement, ast.FunctionDef)
        if is_default:
            lines = range(first, (statement.end_lineno or first) + 1)
        in_function = function or is_default
        assigned = frozenset() if in_function else assigned_names(statement)
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        change = ".".join(scope), source[start:end], new if isinstance(node, ast.stmt) else f"({new})"
        place = (path, change[0], node.lineno, tuple(lines), assigned, start, end)
        mutants.append(Mutant(*place, *change[1:], numbers[change]))
        numbers[change] += 1

    def visit(node: Any, scope: tuple[str, ...], statement: Any, function: Any) -> None:
        is_message = isinstance(node, UNCHANGED) or (isinstance(node, ast.Call) and called_name(node) in TEXTS)
        is_message |= isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and not function  # a type
        is_docstring = isinstance(node, ast.Expr) and is_text(node.value)
        if is_message or is_docstring or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            return
        statement = node if isinstance(node, ast.stmt) else statement
        if "__all__" in assigned_names(statement):
            return
        for new in replacements(node, source, ast.unparse(function.returns) if function and function.returns else ""):
            add(node, new, scope, statement, function)
        for test in [node.test] if isinstance(node, ast.If) else getattr(node, "ifs", []):
            opposite = [] if isinstance(test, ast.Compare | ast.UnaryOp) else [f"not ({ast.unparse(test)})"]
            for new in ("True", "False", *opposite):
                add(test, new, scope, statement, function)
        inner = (*scope, node.name) if isinstance(node, ast.FunctionDef | ast.ClassDef) else scope
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list"):
                    in_body = name == "body" and isinstance(node, ast.FunctionDef)
                    visit(child, inner, statement, node if in_body else function)

    for statement in ast.parse(source).body:
        visit(statement, (), statement, None)
    return mutants


def sample_mutants(paths: list[str], count: int, seed: int) -> list[Mutant]:
    """Sample mutants that compile. The rank of each depends on its key and the seed only."""
    sources = {path: Path(path).read_text() for path in paths}
    mutants = [mutant for path, source in sources.items() for mutant in list_mutants(path, source)]
    print(f"{len(mutants):,} mutants of {len(paths)} files")
    mutants.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    sampled: list[Mutant] = []
    for mutant in mutants:
        source = sources[mutant.path]
        try:
            is_changed = ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            continue
        sampled += [mutant] if is_changed else []
        if len(sampled) == count:
            break
    return sampled


class Recorder:
    """Plugin of pytest: duration of each test, names of failed tests, and with ``coverage`` the lines of each test."""

    def __init__(self, coverage: Any = None, selected: list[str] | None = None) -> None:
        self.coverage, self.selected = coverage, selected
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.selected is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[test] for test in self.selected if test in found]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.coverage:
            self.coverage.switch_context(item.nodeid)
        start = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - start
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed += [report.nodeid] if not report.passed else []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.failed += [report.nodeid] if not report.passed else []


def record_lines(paths: list[str], files: list[str], place: Path) -> None:
    """Run test files, and write the duration and the lines of each test that passes."""
    from coverage import Coverage

    absolute = {path: str(Path(path).resolve()) for path in paths}
    coverage = Coverage(data_file=None, include=[*absolute.values()])
    coverage.start()
    recorder = Recorder(coverage)
    pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", *files], plugins=[recorder])
    coverage.stop()
    passed = {test: seconds for test, seconds in recorder.seconds.items() if test not in recorder.failed}
    tests = {test: {"seconds": seconds, "lines": {path: [] for path in paths}} for test, seconds in passed.items()}
    for path in paths:
        for line, names in coverage.get_data().contexts_by_lineno(absolute[path]).items():
            for test in {*names} & {*tests}:
                tests[test]["lines"][path].append(line)
    place.write_text(json.dumps(tests))


def update_map(folder: Path, paths: list[str]) -> dict[str, Any]:
    """Duration and lines of each test, measured again where the package or the test file has changed."""
    place = folder / "map.json"
    stored = json.loads(place.read_text()) if place.exists() else {"files": {}, "tests": {}}
    package = b"".join(path.read_bytes() for path in sorted(Path("vit_vs_cnn").rglob("*.py")))
    names = sorted(Path("tests").rglob("test_*.py"))
    files = {str(path): hashlib.sha256(package + path.read_bytes()).hexdigest() for path in names}
    changed = [path for path, value in files.items() if stored["files"].get(path) != value]
    if changed:
        print(f"running {len(changed)} test files to find their lines", flush=True)
        command = [sys.executable, "-m", "tests.mutants", "--record", str(folder / "new.json"), "--files", *changed]
        with (folder / "new.txt").open("w") as output:
            subprocess.run([*command, "--paths", *paths], check=True, stdout=output, stderr=output)
        unchanged = {*files} - {*changed}
        kept = {test: value for test, value in stored["tests"].items() if test.partition("::")[0] in unchanged}
        stored = {"files": files, "tests": kept | json.loads((folder / "new.json").read_text())}
        place.write_text(json.dumps(stored))
    return stored["tests"]


class TestSelection:
    """Tests for each mutant, by the lines that they execute."""

    __test__ = False

    def __init__(self, tests: dict[str, Any], paths: list[str]) -> None:
        self.seconds = {test: value["seconds"] for test, value in tests.items()}
        self.by_line: dict[tuple[str, int], set[str]] = collections.defaultdict(set)
        for test, value in tests.items():
            for place in ((path, line) for path, lines in value["lines"].items() for line in lines):
                self.by_line[place].add(test)
        self.functions = [
            (path, range(node.body[0].lineno, (node.end_lineno or 0) + 1), used_names(node))
            for path in paths
            for node in ast.walk(ast.parse(Path(path).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]

    def find_executing(self, mutant: Mutant) -> set[str]:
        """Tests that execute a changed line, or a function that uses the changed constant or field."""
        if not mutant.assigned:
            return set().union(*(self.by_line[mutant.path, line] for line in mutant.lines))
        users = [(path, body) for path, body, names in self.functions if names & mutant.assigned]
        return set().union(*(self.by_line[path, line] for path, body in users for line in body))

    def select(self, mutant: Mutant) -> list[str]:
        """Tests in their order, with a limited duration; none if no test executes the line."""
        path = Path(mutant.path).relative_to("vit_vs_cnn")
        own = str("tests" / path.with_name(f"test_{path.name}"))
        executing = self.find_executing(mutant)
        files = {own, *(test.partition("::")[0] for test in executing)}
        tests = [test for test in self.seconds if test.partition("::")[0] in files] if executing else []
        tests.sort(key=lambda test: (test not in executing, not test.startswith(own), self.seconds[test]))
        total, selected = 0.0, []
        for test in tests:
            total += self.seconds[test]
            selected += [test] if total <= MAX_SECONDS or not selected else []
        return selected


def run_forked(tests: list[str], seconds: float, folder: Path, *, all_failures: bool = False) -> list[str]:
    """Run tests in a forked process. Returns the tests that failed, or ``["timeout"]``."""
    place = folder / "failed.json"
    place.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        output = os.open(folder / "pytest.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        recorder = Recorder(selected=tests)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        options = [*"-p no:cacheprovider -p no:xdist".split(), "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += [f"--basetemp={folder / 'tmp'}"]
        try:
            code = pytest.main([*options, *([] if all_failures else ["-x"]), *files], plugins=[recorder])
            place.write_text(json.dumps(recorder.failed or (["import"] if code else [])))
        finally:
            os._exit(0)
    end = time.monotonic() + 60 + 5 * seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return ["timeout"]
        time.sleep(0.05)
    return json.loads(place.read_text()) if place.exists() else ["crash"]


def test_mutants(mutants: list[Mutant], tests: TestSelection, folder: Path, results: Path) -> None:
    """Test mutants one after another, and append the result of each."""
    for number, mutant in enumerate(mutants):
        place, start = Path(mutant.path), time.monotonic()
        source, selected = place.read_text(), tests.select(mutant)
        failed: list[str] = []
        if selected:
            place.write_text(mutant.apply(source))
            os.utime(place, (start_time := time.time() + 10 * number + 10, start_time))  # compiled anew
            failed = run_forked(selected, sum(map(tests.seconds.__getitem__, selected)), folder)
            place.write_text(source)
            os.utime(place, (start_time + 5, start_time + 5))
        status = "killed" if failed else "survived" if selected else "not executed"
        row = {"key": mutant.key, "path": mutant.path, "line": mutant.line, "old": mutant.old, "new": mutant.new}
        row |= {"status": status, "test": failed[0] if failed else "", "seconds": round(time.monotonic() - start, 1)}
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number + 1}/{len(mutants)} {status:12} {mutant.path}:{mutant.line} {mutant.new}", flush=True)


def print_results(rows: list[dict[str, Any]]) -> None:
    names = ("killed", "survived", "not executed")
    counts = collections.Counter((row["path"].split("/")[1], row["status"]) for row in rows)
    print(f"\n{'':16}" + "".join(f"{name:>14}" for name in names))
    for package in sorted({package for package, _ in counts}):
        print(f"{package:16}" + "".join(f"{counts[package, name]:14}" for name in names))
    killed = sum(row["status"] == "killed" for row in rows)
    print(f"{killed} of {len(rows)} mutants killed ({100 * killed / max(len(rows), 1):.1f} %)")
    for row in rows:
        if row["status"] != "killed":
            print(f"\n{row['status']}: {row['path']}:{row['line']}\n  - {row['old']}\n  + {row['new']}")


def copy_repository(tree: Path) -> None:
    """Copy the files of the repository, with uncommitted changes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = {
        name for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0") if (ROOT / name).is_file()
    }
    for name in names:
        new = tree / name
        if not new.exists() or new.read_bytes() != (ROOT / name).read_bytes():
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, new)
    for old in tree.rglob("*.py"):
        if str(old.relative_to(tree)) not in names:
            old.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", nargs="+", default=PATHS, help="files or folders in vit_vs_cnn/")
    parser.add_argument("--again", action="store_true", help="repeat mutants that were not killed")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "vit_vs_cnn_mutants")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs="+", default=(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record_lines(options.paths, options.files, options.record)
        return
    tree = options.folder.resolve() / "tree"
    copy_repository(tree)
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    package = Path("vit_vs_cnn")
    places = [package / name for name in PATHS]
    found = [path for place in places for path in ([place] if place.suffix else place.rglob("*.py"))]
    tests = TestSelection(update_map(tree.parent, sorted(map(str, found))), sorted(map(str, found)))
    chosen = [str(path) for path in found if any(path.is_relative_to(package / name) for name in options.paths)]
    mutants = sample_mutants(sorted(chosen), options.count, options.seed)
    results = tree.parent / f"results-{options.seed}.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    rows = {row["key"]: row for row in map(json.loads, lines)}
    done = {key for key, row in rows.items() if row["status"] == "killed" or not options.again}
    sys.path.insert(0, str(tree))
    del sys.modules["tests"]
    for name in LIBRARIES.split():
        importlib.import_module(name)
    gc.freeze()
    test_mutants([mutant for mutant in mutants if mutant.key not in done], tests, tree.parent, results)
    rows = {row["key"]: row for row in map(json.loads, results.read_text().splitlines())}
    sampled = [rows[mutant.key] for mutant in mutants]
    print_results(sampled)
    killing = sorted({row["test"] for row in sampled} & {*tests.seconds})
    failed = run_forked(killing, sum(map(tests.seconds.__getitem__, killing)), tree.parent, all_failures=True)
    print(f"\n{len(killing)} tests killed mutants. Failed without a mutant: {', '.join(failed) or 'none'}")


if __name__ == "__main__":
    main()
