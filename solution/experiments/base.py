"""An experiment: a ranker with its settings, collections and seeds.

Each experiment is a Python file that defines EXPERIMENT, in this package or anywhere on disk. The
file's name is the experiment's name. The experiments of a published system are defined together in
one file, as a tuple called EXPERIMENTS; each is written with its name and a sentence `about` it.
"""

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from solution import experiments
from solution.domain.collection import collection
from solution.models.base import RankerSettings
from solution.models.catalogue import ADDED, describe_settings
from solution.runs.fingerprint import fingerprint_modules, hash_source
from solution.system.errors import InputError
from solution.system.names import check_name, suggest

# the largest seed that all libraries accept
MOST_SEED = 2**31 - 1
# this project's packages; a user's experiment may import them, but they are not part of its source
OURS = ("solution", "ensembles", "submissions")
# name of this module, the only module of its package that does not define an experiment
BASE = "base"
FROM_FILE = "fastslow_experiment_"  # prefix of the module names of experiment files


@dataclass(frozen=True)
class Experiment:
    """A ranker's settings, the collections it is trained on, and its seeds."""

    name: str
    collections: tuple[str, ...]
    ranker: RankerSettings
    seeds: tuple[int, ...] = (0,)
    # groups of collections of one source (xla or nlp); each group trains one model, which ranks all
    train_jointly: tuple[tuple[str, ...], ...] = ()
    # hash of the experiment's code and of the files it imports, without code that is already in a
    # run's fingerprint
    source: str = ""
    # name or path from which the experiment was loaded; empty if it was made in memory
    origin: str = ""
    is_quick: bool = False  # True for a quick look (smoke run): one seed, short trainings
    share: float = 1.0  # fraction of the usual epochs of nets; below 1 if time is limited
    about: str = ""  # sentence about the experiment; empty if its file's docstring describes it

    def __post_init__(self) -> None:
        """Raise InputError if the experiment could not be trained."""
        try:
            check_name(self.name)
        except ValueError as error:
            raise InputError(f"{error}. Rename the experiment.") from None
        if not isinstance(self.ranker, RankerSettings):
            raise InputError(
                f"{self.name}: ranker is {self.ranker!r}, expected settings that inherit from "
                "solution.models.base.RankerSettings."
            )
        describe_settings(self.ranker)  # raises InputError if settings cannot be saved with a model
        self._check_several("collections", str, 'names, such as ("tile:xla",)')
        self._check_several("seeds", int, "numbers, such as (0,)")
        if wrong := [seed for seed in self.seeds if not 0 <= seed <= MOST_SEED]:
            raise InputError(
                f"{self.name}: seeds has {wrong[0]}, expected numbers from 0 to {MOST_SEED}."
            )
        for name in self.collections:
            collection(name)
        self._check_groups()

    def _check_several(self, what: str, kind: type, expected: str) -> None:
        """Raise InputError unless the field named `what` is a tuple or list of one or more distinct
        entries of type `kind`."""
        given: Any = getattr(self, what)
        is_several = isinstance(given, tuple | list) and len(given) > 0
        if not is_several or any(type(one) is not kind for one in given):
            raise InputError(
                f"{self.name}: {what} is {given!r}, expected {expected}, with a comma behind each."
            )
        if len(set(given)) < len(given):
            raise InputError(f"{self.name}: {what} is {given!r}, expected none of them twice.")

    def _check_groups(self) -> None:
        """Raise InputError unless each group of `train_jointly` has collections of one source, and
        no collection is in two groups."""
        named = [name for group in self.train_jointly for name in group]
        sources = [{collection(name).source for name in group} for group in self.train_jointly]
        if len(set(named)) < len(named) or any(len(found) > 1 for found in sources):
            raise InputError(
                f"{self.name}: train_jointly is {self.train_jointly}, expected groups of one "
                "source each, such as layout:xla:default and layout:xla:random, and no collection "
                "twice. Programs of one source have the same fold in all its collections."
            )

    def learns_from(self, name: str) -> tuple[str, ...]:
        """Return all collections, `name` included, that train the model which ranks `name`."""
        return next((group for group in self.train_jointly if name in group), (name,))

    def quick(self) -> "Experiment":
        """Return a copy for a quick look: one seed and short trainings."""
        return dataclasses.replace(
            self, ranker=self.ranker.quick(), seeds=self.seeds[:1], is_quick=True
        )

    def cut(self, seeds: int, share: float) -> "Experiment":
        """Return a copy with at most `seeds` seeds and the fraction `share` of the nets' epochs."""
        ranker = self.ranker.shortened(share)
        return dataclasses.replace(self, ranker=ranker, seeds=self.seeds[:seeds], share=share)

    def describe(self) -> dict[str, Any]:
        """Return the fields that a run's record stores."""
        return {
            "collections": list(self.collections),
            "ranker": repr(self.ranker),
            "seeds": list(self.seeds),
            "train_jointly": [list(group) for group in self.train_jointly],
            "source": self.source,
        }


def list_experiments() -> list[str]:
    """Return the names of the package's experiments."""
    return sorted([*_list_ours(), *_list_published()])


def list_added() -> list[str]:
    """Return the names of the experiments of published systems, which the packages ADDED define."""
    return sorted(_list_published())


def describe_experiments() -> dict[str, str]:
    """Return a sentence about each experiment, by name; no experiment is imported."""
    found = {name: about for name, (_, about) in _list_published().items()}
    for name in _list_ours():
        source = Path(experiments.__path__[0], f"{name}.py").read_text(encoding="utf-8")
        words = ast.get_docstring(ast.parse(source)) or ""
        found[name] = " ".join(words.split("\n\n")[0].split())
    return dict(sorted(found.items()))


def _list_ours() -> list[str]:
    return [
        found.name for found in pkgutil.iter_modules(experiments.__path__) if found.name != BASE
    ]


@cache
def _list_published() -> dict[str, tuple[str, str]]:
    """Return (module, sentence about it) for each experiment of a published system, by name. The
    modules are parsed, not imported, because importing them takes seconds."""
    found = {}
    for added in ADDED:
        package = importlib.import_module(f"{added}.experiments")
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                words = _list_words(node) if isinstance(node, ast.Call) else {}
                if "about" in words:
                    module = f"{package.__name__}.{path.stem}"
                    found[words["name"]] = (module, words["about"])
    return found


def _list_words(call: ast.Call) -> dict[str, str]:
    """Return the keyword arguments of a call that are string literals."""
    values = ((one.arg, one.value) for one in call.keywords if one.arg)
    return {
        name: value.value
        for name, value in values
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def find_experiment(name: str) -> Experiment:
    """Load one of the package's experiments by name, or a user's from a Python file, which is
    executed. Raises InputError if it is missing, or if EXPERIMENT is not named like its file."""
    path = Path(name)
    if path.suffix != ".py":
        return find_named_experiment(name)
    return _take_experiment(_import_file(path), path.stem, str(path.absolute()))


def find_named_experiment(name: str) -> Experiment:
    """Load one of the package's experiments. No user's file is executed, so the name may come from
    an untrusted record. Raises InputError if no experiment has the name."""
    published = _list_published()
    if name in published:
        table = importlib.import_module(published[name][0]).EXPERIMENTS
        experiment = next(one for one in table if one.name == name)
        source = fingerprint_modules(_list_modules(experiment.ranker))
        return dataclasses.replace(experiment, source=source, origin=name)
    if name not in _list_ours():
        known = list_experiments()
        raise InputError(
            f"{name!r} is not an experiment.{suggest(name, known)} `fastslow experiments --all` "
            "lists them; or give the path of a Python file that holds an EXPERIMENT."
        )
    module = importlib.import_module(f"{experiments.__name__}.{name}")
    return _take_experiment(module, name, name)


def _list_modules(settings: RankerSettings) -> tuple[str, ...]:
    """Return the names of the modules that define the class of the settings, and the classes of
    other rankers' settings nested in them."""
    values = (getattr(settings, one.name) for one in dataclasses.fields(settings))  # type: ignore
    inner = [_list_modules(value) for value in values if isinstance(value, RankerSettings)]
    return tuple(sorted({type(settings).__module__}.union(*inner)))


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
    """Return a hash of the experiment's code, without the code that a run's fingerprint covers."""
    if module.__name__.partition(".")[0] == OURS[0]:
        return fingerprint_modules((module.__name__,))
    sources = read_sources(Path(str(module.__file__)))
    return hashlib.sha256("".join(map(hash_source, sources.values())).encode()).hexdigest()[:16]


def read_sources(path: Path) -> dict[str, bytes]:
    """Return the contents, by relative path, of a Python file and of the files in its folder that
    it imports, directly or through others. Of an imported package, all Python files are returned;
    links to folders are not followed."""
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
    """Return the files in the folder that an import of the name would load."""
    package, file = folder / name, folder / f"{name}.py"
    if name in OURS and package.is_dir():
        return []
    if not (package / "__init__.py").is_file():
        if file.is_file():
            return [file]
        # A folder without __init__.py is imported only if no other module has its name.
        if not package.is_dir() or _is_elsewhere(name):
            return []
    return sorted(package.rglob("*.py"))


def _is_elsewhere(name: str) -> bool:
    """Return True if an import of the name finds a module; a folder without `__init__.py` does not
    count."""
    try:
        found = importlib.util.find_spec(name)
    # raised by find_spec if a module such as __main__ runs without a spec
    except ValueError:
        return True
    return found is not None and found.origin is not None


def _list_imports(source: bytes) -> list[str]:
    """Return the top-level names that the source imports, in order; none if it is invalid."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    # an import may name a file that is not valid Python; it is still part of the sources
    except (SyntaxError, ValueError):
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
    # register the module, because the decorator of dataclasses looks it up in sys.modules
    sys.modules.setdefault(spec.name, module)
    try:
        spec.loader.exec_module(module)
    except InputError as error:  # raised by Experiment if it cannot be trained
        raise InputError(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: importing it failed: {type(error).__name__}: {error}") from error
    return module


def _let_import_neighbours(path: Path) -> None:
    """Let the experiment in the file `path` import the files beside it, as a script can. Raises
    InputError if another module has the name of such a file and other content: Python would import
    that module instead. Helper files of a tuned experiment are copies, so they are accepted."""
    folder = path.absolute().parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    # clear Python's import caches, which may miss files that were written just now
    importlib.invalidate_caches()
    sources = {Path(name): content for name, content in read_sources(path).items()}
    for name in sorted({source.parts[0] for source in sources} - {path.name}):
        taken = _find_place(importlib.util.find_spec(name.removesuffix(".py")))
        needed = {source: text for source, text in sources.items() if source.parts[0] == name}
        if taken != str((folder / name).resolve()) and not _holds(Path(taken).parent, needed):
            raise InputError(
                f"{path}: imports {name} from its own folder, but Python would import {taken} "
                "instead. Rename it."
            )


def _holds(folder: Path, contents: Mapping[Path, bytes]) -> bool:
    """Return True if the folder holds these files, {relative path: bytes}, unchanged."""
    files = [(folder / name, content) for name, content in contents.items()]
    return all(file.is_file() and file.read_bytes() == content for file, content in files)


def _find_place(found: ModuleSpec | None) -> str:
    """Return the file of a module, or the first folder of a package, as text; "nothing" if None."""
    if found is None:
        return "nothing"
    if found.submodule_search_locations:
        return str(Path(next(iter(found.submodule_search_locations))).resolve())
    return str(Path(str(found.origin)).resolve()) if found.has_location else str(found.origin)
