"""Limits that keep the code readable in an afternoon."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PACKAGES = ("solution", "ensembles", "submissions")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "misc", "common", "v2", "new", "final"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 500, 50


def source_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((REPOSITORY / package).rglob("*.py"))


@cache
def parsed_files() -> list[tuple[Path, ast.Module]]:
    others = [
        path for room in ("tests", "benchmarks") for path in (REPOSITORY / room).rglob("*.py")
    ]
    paths = [*source_files(), *sorted(others)]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def test_files_are_short_and_named_for_what_they_hold() -> None:
    for path, _ in parsed_files():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES, path
        assert not FORBIDDEN_NAMES & set(path.stem.split("_")), path


def test_functions_are_short() -> None:
    for path, tree in parsed_files():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= MAX_FUNCTION_LINES, f"{path}: {node.name} has {length} lines"


def test_every_module_says_what_it_is() -> None:
    for path, tree in parsed_files():
        if path.name != "__init__.py":
            assert ast.get_docstring(tree), path


def test_nothing_is_read_from_the_environment_by_an_import() -> None:
    """It may be set after that; only the command line is put together for one environment."""
    for path, tree in parsed_files():
        if path.relative_to(REPOSITORY).parts[0] not in PACKAGES:
            continue
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.Lambda)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                is_set = path == REPOSITORY / "solution" / "__init__.py"  # for torch, once
                assert is_set or id(node) in inside, f"{path}: line {node.lineno}"


def test_what_a_benchmark_imports_from_our_modules_is_there() -> None:
    """Most benchmarks are imported by no test."""
    trees = dict(parsed_files())
    for path in sorted((REPOSITORY / "benchmarks").glob("*.py")):
        for node in ast.walk(trees[path]):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            source = REPOSITORY.joinpath(*node.module.split(".")).with_suffix(".py")
            if source in trees:
                missing = {alias.name for alias in node.names} - names_of(trees[source])
                assert not missing, f"{path}: {source} has no {', '.join(missing)}"


@cache
def names_of(module: ast.Module) -> set[str]:
    """What a module defines or imports, at any depth."""
    names = {"*"}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def test_blending_and_submitting_start_without_torch() -> None:
    """What import-linter says of the source, seen in a running interpreter."""
    import subprocess
    import sys

    code = (
        "import sys, ensembles.merge, submissions.writer, submissions.build\n"
        "import submissions.page.build\n"
        "heavy = {'torch', 'lightgbm', 'torch_geometric', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
