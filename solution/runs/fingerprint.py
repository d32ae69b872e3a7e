"""Hash the code that decides what a run predicts.

The modules are found by following imports from the modules that make predictions (ROOTS). Imports
inside functions count, and so does each module whose dotted name is the whole text of a string.

The hash leaves out comments, docstrings, type annotations, messages of exceptions and the paths of
modules. Local variables and module-level names that begin with one underscore are hashed as
numbers. So rewording, formatting, moving a module and renaming these do not change the fingerprint.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from solution.system.errors import InputError
from solution.system.files import replace_file

ROOTS = (
    "solution.training.fit",  # fits a model, and predicts with it
    "solution.training.distilling",  # trains students on the predictions of an ensemble
    "solution.store.preparing",  # turns the graphs' files into the prepared data set
    "solution.models.light",  # evaluates the nets of a bundle without torch
    "solution.models.layout.listed_net",  # evaluates a layout net incrementally
)
# Packages that fingerprint_code leaves out. The first two do not change results. The other two are
# hashed with fingerprint_modules, only for experiments that use them.
APART = (
    "solution.system",
    "solution.runs",
    "solution.papers",
    "solution.experiments.layout_compiler_001",
)
PACKAGES = ("solution", "ensembles")
HERE = Path(__file__).parents[2]
KEPT = "solution/__pycache__/fingerprints.json"  # cache of the modules' hashes, below the root
NAMED = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")  # a dotted name in this project's packages
# The argument `names` of _describe has this key while a function's local variables are numbered.
IN_FUNCTION = ""
# fields of the syntax tree that are not hashed
WITHOUT = frozenset(
    ("annotation", "returns", "type_comment", "type_params", "type_ignores", "ctx", "kind")
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """The hash of a module's code, and its imports of this project's packages."""

    stamp: str  # size and times of the file, which show whether it has changed
    code: str  # hash of the code without imports of this project's packages
    imports: list[list[str]]  # for each import: the module, the name imported from it, the alias


@cache
def fingerprint_code(root: Path = HERE) -> str:
    """Return a hash of the code in the folder `root` that decides what runs predict."""
    sources = _Sources(root)
    return sources.hash(sources.follow(ROOTS, APART))


@cache
def fingerprint_modules(names: tuple[str, ...], root: Path = HERE) -> str:
    """Return a hash of the modules `names` and of all modules that they import, except modules that
    fingerprint_code covers."""
    sources = _Sources(root)
    covered = sources.follow(ROOTS, APART)
    others = tuple(room for room in APART if not any(_lies_in(name, (room,)) for name in names))
    return sources.hash(sources.follow(names, others, covered))


class _Sources:
    """The modules below a folder; their hashes are cached in a file until a module changes."""

    def __init__(self, root: Path) -> None:
        self._root, self._known = root, _read_kept(root / KEPT)
        self._found: dict[str, Source] = {}
        self._files: dict[str, str | None] = {}
        self._changed = False

    def follow(
        self, roots: Iterable[str], apart: tuple[str, ...], covered: Set[str] = frozenset()
    ) -> set[str]:
        """Return `roots` and all modules that they import, directly or not. Modules in the packages
        `apart` and the modules `covered` are left out and not followed."""
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name not in found and name not in covered and not _lies_in(name, apart):
                found.add(name)
                waiting += [module for module, _ in self._list_imports(name)]
        self._keep()
        return found

    def hash(self, names: Iterable[str]) -> str:
        """Return a hash of the code of the modules `names`. It does not depend on their order or
        paths: an import is hashed as the code of the imported module."""
        modules = []
        for name in names:
            imports = [
                f"{'' if _lies_in(module, APART) else self.read(module).code} {words}"
                for module, words in self._list_imports(name)
            ]
            modules.append("\n".join([self.read(name).code, *sorted(imports)]))
        return hashlib.sha256("\n\n".join(sorted(modules)).encode()).hexdigest()[:16]

    def read(self, name: str) -> Source:
        """Return a module's code hash and imports, from the cache if its file is unchanged."""
        if name not in self._found:
            file = self._find(name)
            if file is None:
                raise ModuleNotFoundError(f"{name}: there is no such module in {self._root}.")
            path = self._root / file
            stat = path.stat()
            stamp = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
            if file not in self._known or self._known[file].stamp != stamp:
                self._known[file] = Source(stamp, *read_code(path.read_bytes()))
                self._changed = True
            self._found[name] = self._known[file]
        return self._found[name]

    def _list_imports(self, name: str) -> list[tuple[str, str]]:
        """Return (module, "NAME ALIAS") of each import in the module `name`. If the imported NAME
        is itself a module, it is returned as the module, and NAME is empty."""
        found = []
        for module, imported, given in self.read(name).imports:
            inside = f"{module}.{imported}"
            if imported and self._find(inside):
                module, imported = inside, ""
            # a string may name a class: use the module that contains it
            while "." in module and self._find(module) is None:
                module, _, imported = module.rpartition(".")
            found.append((module, f"{imported} {given}"))
        return found

    def _find(self, name: str) -> str | None:
        """Return the path of a module's file below the root; None if there is no such module."""
        if name not in self._files:
            stem = name.replace(".", "/")
            files = (f"{stem}.py", f"{stem}/__init__.py")
            self._files[name] = next((f for f in files if (self._root / f).is_file()), None)
        return self._files[name]

    def _keep(self) -> None:
        if self._changed:
            sources = {file: asdict(source) for file, source in self._known.items()}
            text = json.dumps({"by": _stamp_rules(), "sources": sources})
            with suppress(OSError, InputError), replace_file(self._root / KEPT) as path:
                path.write_text(text, encoding="utf-8")
            self._changed = False


def _lies_in(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def _read_kept(path: Path) -> dict[str, Source]:
    """Return the cached hashes; none if the cache is missing or this file's code has changed."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["by"] == _stamp_rules():
            return {key: Source(**source) for key, source in kept["sources"].items()}
    return {}


def _stamp_rules() -> int:
    return crc32(Path(__file__).read_bytes())


def read_code(source: bytes) -> tuple[str, list[list[str]]]:
    """Return a hash of a module's code without imports of our packages, and these imports. Raises
    SyntaxError or ValueError if the source is not valid Python."""
    tree = ast.parse(source)
    described = _describe(tree, _number_private(tree))
    imports = sorted(_list_imports(tree))
    return hashlib.sha256(described.encode()).hexdigest(), imports


def hash_source(source: bytes) -> str:
    """Return a hash of the code of a file, or of its bytes if it is not valid Python."""
    try:
        code, imports = read_code(source)
    except (SyntaxError, ValueError):
        return hashlib.sha256(source).hexdigest()
    return f"{code}{imports}"


def _describe(node: Any, names: Mapping[str, str]) -> str:
    """Return a text of the syntax tree that is equal for equal code, on every Python version.
    `names` maps private and local names to the numbers that replace them."""
    if isinstance(node, list):
        kept = (item for item in node if not _decides_nothing(item))
        return f"[{','.join(_describe(item, names) for item in kept)}]"
    if not isinstance(node, ast.AST):
        return _describe_value(node)
    if isinstance(node, Function) and IN_FUNCTION not in names:
        names = {**names, **_number_locals(node)}
    values = {
        name: _raised(value) if isinstance(node, ast.Raise) else value
        for name, value in ast.iter_fields(node)
        if name not in WITHOUT and value is not None and value != []
    }
    if isinstance(node, Function | ast.ClassDef):
        values["name"] = names.get(node.name, node.name)
    elif isinstance(node, ast.Name):
        values["id"] = names.get(node.id, node.id)
    fields = (f"{name}={_describe(value, names)}" for name, value in values.items())
    return f"{type(node).__name__}({','.join(fields)})"


def _describe_value(value: object) -> str:
    """Return a constant as text; a dotted name of this project is shortened to its last part."""
    if isinstance(value, str) and NAMED.fullmatch(value):
        value = value.rpartition(".")[2]
    return repr(value)


def _raised(value: ast.expr) -> ast.expr:
    """Return the class of a raised exception, without the arguments: they are the error message."""
    return value.func if isinstance(value, ast.Call) else value


def _decides_nothing(node: Any) -> bool:
    """Return True if the statement cannot change results. That holds for docstrings, `pass`,
    imports of our packages, and blocks `if TYPE_CHECKING`."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.Import):
        return all(_is_ours(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return _is_ours(node.module or "")
    return isinstance(node, ast.Pass) or _is_for_types(node)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _is_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _list_imports(tree: ast.AST) -> Iterable[list[str]]:
    """Yield the module, the imported name and the alias of each import of our packages. A module
    that is named in a string counts as an import."""
    for node in ast.iter_child_nodes(tree):
        if _is_for_types(node):
            continue
        if isinstance(node, ast.Import):
            ours = (alias for alias in node.names if _is_ours(alias.name))
            yield from ([alias.name, "", alias.asname or ""] for alias in ours)
        elif isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            yield from ([str(node.module), one.name, one.asname or ""] for one in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if NAMED.fullmatch(node.value):
                yield [node.value, "", ""]
        else:
            yield from _list_imports(node)


def _number_private(tree: ast.Module) -> dict[str, str]:
    """Return a numbered replacement, by name, of each module-level name that begins with one _."""
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            found.append(node.name)
        else:
            found += _list_stored(ast.walk(node))
    private = [name for name in found if name.startswith("_") and not name.startswith("__")]
    return {name: f"_{number}" for number, name in enumerate(dict.fromkeys(private))}


def _number_locals(function: Function) -> dict[str, str]:
    """Return a numbered replacement, by name, of each local variable of a function. Parameters keep
    their names. Local variables of functions inside the function are included. A function that
    contains a class gets no replacements."""
    nodes = list(ast.walk(function))
    if any(isinstance(node, ast.ClassDef) for node in nodes):
        return {}
    found = _list_stored(nodes)
    kept = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            kept |= set(node.names)
    variables = [name for name in dict.fromkeys(found) if name not in kept]
    return {IN_FUNCTION: "", **{name: f"{number}" for number, name in enumerate(variables)}}


def _list_stored(nodes: Iterable[ast.AST]) -> list[str]:
    names = (node for node in nodes if isinstance(node, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]
