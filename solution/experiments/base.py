"""An experiment: a ranker with its settings, on its collections, with its seeds.

Each is a file that holds one frozen value called EXPERIMENT: in this package, in the packages that
the catalogue of kinds names (published systems), or anywhere on disk. The file's name is the
experiment's name.
"""

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from solution import experiments
from solution.domain.collection import collection
from solution.models.base import RankerSettings
from solution.models.catalogue import ADDED, describe_settings
from solution.runs.fingerprint import fingerprint_module, hash_source
from solution.system.errors import InputError
from solution.system.names import check_name, suggest

MOST_SEED = 2**31 - 1  # that all libraries take
OURS = ("solution", "ensembles", "submissions")  # beside a file in a clone, and no part of it
FROM_FILE = "fastslow_experiment_"  # what the modules of files are called, before the file's name


@dataclass(frozen=True)
class Experiment:
    """What is trained."""

    name: str
    collections: tuple[str, ...]
    ranker: RankerSettings
    seeds: tuple[int, ...] = (0,)
    # Groups of collections of one source: a model learns from all of a group and ranks each.
    train_jointly: tuple[tuple[str, ...], ...] = ()
    source: str = ""  # a hash of its code, and of what it imports that is not of all runs
    origin: str = ""  # the name or the file that it was found by; empty where it was made here
    is_quick: bool = False  # cut short, for a first look
    share: float = 1.0  # of the epochs of nets: less to end in time

    def __post_init__(self) -> None:
        """Raise InputError where it could never be trained."""
        try:
            check_name(self.name)
        except ValueError as error:
            raise InputError(f"{error}. Rename the experiment.") from None
        if not isinstance(self.ranker, RankerSettings):
            raise InputError(
                f"{self.name}: ranker is {self.ranker!r}, expected settings that inherit from "
                "solution.models.base.RankerSettings."
            )
        describe_settings(self.ranker)  # so that its models can say what they are
        self._check_several("collections", str, 'names, such as ("tile:xla",)')
        self._check_several("seeds", int, "numbers, such as (0,)")
        self._check_seeds()
        for name in self.collections:
            collection(name)
        self._check_groups()

    def _check_several(self, what: str, kind: type, expected: str) -> None:
        """Raise InputError where a field is no tuple, for want of a comma, or has one twice."""
        given: Any = getattr(self, what)
        is_several = isinstance(given, tuple | list) and len(given) > 0
        if not is_several or any(type(one) is not kind for one in given):
            raise InputError(
                f"{self.name}: {what} is {given!r}, expected {expected}, with a comma behind each."
            )
        if len(set(given)) < len(given):
            raise InputError(f"{self.name}: {what} is {given!r}, expected none of them twice.")

    def _check_seeds(self) -> None:
        """Raise InputError where one is a number that some library does not take."""
        if wrong := [seed for seed in self.seeds if not 0 <= seed <= MOST_SEED]:
            raise InputError(
                f"{self.name}: seeds has {wrong[0]}, expected numbers from 0 to {MOST_SEED}."
            )

    def _check_groups(self) -> None:
        named = [name for group in self.train_jointly for name in group]
        sources = [{collection(name).source for name in group} for group in self.train_jointly]
        if len(set(named)) < len(named) or any(len(found) > 1 for found in sources):
            raise InputError(
                f"{self.name}: train_jointly is {self.train_jointly}, expected groups of one "
                "source each, such as layout:xla:default and layout:xla:random, and no collection "
                "twice. Programs of one source have the same fold in all its collections."
            )

    def learns_from(self, name: str) -> tuple[str, ...]:
        """The collections that a model for the collection `name` learns from, itself among them."""
        return next((group for group in self.train_jointly if name in group), (name,))

    def quick(self) -> "Experiment":
        """The same with one seed and short trainings."""
        return dataclasses.replace(
            self, ranker=self.ranker.quick(), seeds=self.seeds[:1], is_quick=True
        )

    def cut(self, seeds: int, share: float) -> "Experiment":
        """The same with so many seeds at most, and so much of the epochs of its nets."""
        ranker = self.ranker.shortened(share)
        return dataclasses.replace(self, ranker=ranker, seeds=self.seeds[:seeds], share=share)

    def describe(self) -> dict[str, Any]:
        """What a run folder remembers of it."""
        return {
            "collections": list(self.collections),
            "ranker": repr(self.ranker),
            "seeds": list(self.seeds),
            "train_jointly": [list(group) for group in self.train_jointly],
            "source": self.source,
        }


def list_experiments() -> list[str]:
    """The names of the experiments that come with the package."""
    return sorted(_list_modules())


def describe_experiments() -> dict[str, str]:
    """The first sentence of each of them, by its name; none is imported."""
    found = {}
    for name, module in sorted(_list_modules().items()):
        package, _, last = module.rpartition(".")
        folder = Path(str(sys.modules[package].__file__)).parent
        words = ast.get_docstring(ast.parse((folder / f"{last}.py").read_text(encoding="utf-8")))
        found[name] = " ".join((words or "").split("\n\n")[0].split())
    return found


def _list_modules() -> dict[str, str]:
    """The module of each experiment of the package, by the experiment's name."""
    return {**_list_modules_of(experiments), **_list_added()}


def list_added() -> list[str]:
    """Return the names of the experiments of packages that add kinds: published systems."""
    return sorted(_list_added())


def _list_added() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in ADDED:
        found |= _list_modules_of(importlib.import_module(f"{package}.experiments"))
    return found


def _list_modules_of(package: ModuleType) -> dict[str, str]:
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    names = (module.name for module in modules if not module.ispkg)
    return {name.rpartition(".")[2]: name for name in names if not name.endswith(".base")}


def find_experiment(name: str) -> Experiment:
    """Load an experiment by its name, or by the path of a Python file, which is executed.

    Raises InputError where there is none, or the file holds no EXPERIMENT of its own name.
    """
    path = Path(name)
    if path.suffix != ".py":
        return find_named_experiment(name)
    return _take_experiment(_import_file(path), path.stem, str(path.absolute()))


def find_named_experiment(name: str) -> Experiment:
    """Load an experiment of the package: for names that stand in a record, which may be anybody's.

    Raises InputError where there is none.
    """
    modules = _list_modules()
    if name not in modules:
        raise InputError(
            f"{name!r} is not an experiment.{suggest(name, modules)} `fastslow experiments --all` "
            "lists them; or give the path of a Python file that holds an EXPERIMENT."
        )
    return _take_experiment(importlib.import_module(modules[name]), name, name)


def _take_experiment(module: ModuleType, name: str, origin: str) -> Experiment:
    experiment = vars(module).get("EXPERIMENT")
    expected = f"{origin}: expected EXPERIMENT = Experiment(name={name!r}, ...) in it"
    if experiment is None:
        raise InputError(f"{expected}, found nothing of that name.")
    if not isinstance(experiment, Experiment):
        raise InputError(f"{expected}, found {type(experiment).__name__}.")
    if experiment.name != name:
        raise InputError(
            f"{expected}, found the name {experiment.name!r}. Give the experiment the name of its "
            "file."
        )
    return dataclasses.replace(experiment, source=_fingerprint(module), origin=origin)


def _fingerprint(module: ModuleType) -> str:
    """Return a hash of the code of an experiment, and of what it imports and no run covers."""
    if module.__name__.partition(".")[0] == OURS[0]:
        return fingerprint_module(module.__name__)
    sources = read_sources(Path(str(module.__file__)))
    return hashlib.sha256("".join(map(hash_source, sources.values())).encode()).hexdigest()[:16]


def read_sources(path: Path) -> dict[str, bytes]:
    """The file, and what it imports from files and packages beside it, as far as that goes.

    By their names in its folder; of a package all its Python files, but none behind a link.
    """
    sources: dict[str, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(path.parent).as_posix()
        if name not in sources and file.is_file():
            sources[name] = file.read_bytes()
            for imported in _list_imports(sources[name]):
                waiting += _find_beside(path.parent, imported)
    return sources


def _find_beside(folder: Path, name: str) -> list[Path]:
    """The files in the folder of what is imported by the name, as Python looks for it."""
    package, file = folder / name, folder / f"{name}.py"
    if name in OURS and package.is_dir():
        return []
    if not (package / "__init__.py").is_file():
        if file.is_file():
            return [file]
        # Such a folder comes behind all else that has the name.
        if not package.is_dir() or _is_elsewhere(name):
            return []
    return sorted(package.rglob("*.py"))


def _is_elsewhere(name: str) -> bool:
    """Whether something else than a folder without `__init__.py` is imported by the name."""
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # of what runs, as __main__
        return True
    return found is not None and found.origin is not None


def _list_imports(source: bytes) -> list[str]:
    """The first part of each name that is imported in the source, if it is Python, in order."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):  # of a file that lies beside and is another's
        return []
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return [name.partition(".")[0] for name in found]


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give a Python file with an EXPERIMENT.")
    spec = importlib.util.spec_from_file_location(f"{FROM_FILE}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: expected a Python file that can be imported.")
    _let_import_neighbours(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except InputError as error:  # an experiment that could never be trained
        raise InputError(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: importing it failed: {type(error).__name__}: {error}") from error
    return module


def _let_import_neighbours(path: Path) -> None:
    """What lies beside the file can be imported, as by a script; behind all else that can be.

    Raises InputError where another module has such a name: it would be taken, and nobody told.
    """
    folder = path.absolute().parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()  # which know nothing of files that are a moment old
    for name in sorted({Path(source).parts[0] for source in read_sources(path)} - {path.name}):
        taken = _find_place(importlib.util.find_spec(name.removesuffix(".py")))
        if taken != str((folder / name).resolve()):
            raise InputError(
                f"{path}: imports {name} from beside it, but {taken} would be imported by that "
                "name. Rename it."
            )


def _find_place(found: ModuleSpec | None) -> str:
    """The file of a module, or the folder of a package, of which Python takes the first."""
    if found is None:
        return "nothing"
    if found.submodule_search_locations:
        return str(Path(next(iter(found.submodule_search_locations))).resolve())
    return str(Path(str(found.origin)).resolve()) if found.has_location else str(found.origin)
