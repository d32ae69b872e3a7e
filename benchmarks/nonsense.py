"""Check that no tile with wrong results is ever called correct, over many programs.

    python -m benchmarks.nonsense build/nonsense --programs 200

Each program is a product with common operations before and after it: roots, logarithms, softmax,
normalisations whose variance is a parameter, reductions, narrow types. Its number of columns is not
a multiple of the tile, so some of the tiles N:M:4 (and N:M:3) compute wrong results. Which ones do
is determined on the bare product of the same sizes, whose results can differ. Then the program's
tiles are checked: none of those may be called correct. Each program's result is written at once, so
an interrupted run resumes.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting import program_space
from solution.collecting.child import Compile
from solution.collecting.cpu import Builder
from solution.collecting.journal import SOUND, WRONG
from solution.programs.child import Child, Limits
from solution.programs.program import Program, read_programs
from solution.system.errors import InputError
from solution.system.files import write_json
from tests.made.timed import find_tile

LIMITS = Limits(120)
# Sizes of products: rows, sums, columns. For these, wide tiles compute wrong results; for others
# they crash the compiler.
SIZES = ((64, 48, 70), (64, 64, 232), (33, 100, 40), (64, 16, 47), (8, 64, 90), (33, 48, 232))
TILES = ((1, 4, 4), (4, 2, 4), (4, 4, 1))  # the last one is always right
Function = Callable[..., Any]


def list_before() -> dict[str, Function]:
    """Return operations on the left factor."""
    import jax.numpy as jnp

    return {
        "as it is": lambda x: x,
        "tanh": jnp.tanh,
        "sqrt": jnp.sqrt,
        "log": jnp.log,
        "rsqrt": lambda x: 1 / jnp.sqrt(x),
        "relu": lambda x: jnp.maximum(x, 0),
        "exp": jnp.exp,
    }


def list_behind() -> dict[str, Function]:
    """Return operations on the product; called with it and with four vectors of its columns."""
    import jax
    import jax.numpy as jnp

    def normalise(p: Any, *_: Any) -> Any:
        return (p - p.mean(-1, keepdims=True)) / jnp.sqrt(p.var(-1, keepdims=True) + 1e-5)

    def normalise_by(p: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
        return (p - mean) / jnp.sqrt(variance + 1e-5) * scale + bias

    return {
        "as it is": lambda p, *_: p,
        "tanh": lambda p, *_: jnp.tanh(p),
        "sqrt": lambda p, *_: jnp.sqrt(p),
        "log": lambda p, *_: jnp.log(p),
        "log of 1 -": lambda p, *_: jnp.log(1 - p),
        "softmax": lambda p, *_: jax.nn.softmax(p),
        "log-softmax": lambda p, *_: jax.nn.log_softmax(p),
        "layer normalisation": normalise,
        "batch normalisation": normalise_by,
        "divided by a deviation": lambda p, m, v, *_: (p - m) / jnp.sqrt(v),
        "sum of rows": lambda p, *_: p.sum(-1),
        "sum of columns": lambda p, *_: p.sum(-2),
        "mean of squares": lambda p, *_: (p**2).mean(),
        "largest": lambda p, *_: p.max(-1),
        "position of the largest": lambda p, *_: p.argmax(-1),
        "step of training": lambda p, m, *_: m - 1e-3 * p.mean(-2),
        "times 0": lambda p, m, *_: p * 0 + m,
        "is positive": lambda p, *_: p > 0,
    }


TYPES = (
    "float32", "float32", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8",
    "int4", "float64",
)  # fmt: skip


def draw_program(number: int) -> tuple[str, str, str]:
    """Return a program's description, its HLO text, and the text of the bare product of its
    sizes."""
    import jax
    import jax.numpy as jnp

    generator = np.random.default_rng(number)

    def pick(values: Any) -> Any:
        return values[int(generator.integers(len(values)))]

    rows, inner, columns = pick(SIZES)
    before, behind, kind = pick(list(list_before())), pick(list(list_behind())), pick(TYPES)
    first, then = list_before()[before], list_behind()[behind]

    def program(x: Any, w: Any, *vectors: Any) -> Any:
        result = then(first(x) @ w, *vectors)
        return result.astype(kind) if result.dtype == jnp.float32 and kind != "float64" else result

    kind_of_product = jnp.float64 if kind == "float64" else jnp.float32
    with jax.enable_x64(kind == "float64"):
        shapes = [(rows, inner), (inner, columns), *[(columns,)] * 4]
        given = [jax.ShapeDtypeStruct(shape, kind_of_product) for shape in shapes]
        texts = [
            jax.jit(function).lower(*own).compiler_ir("hlo").as_hlo_text()
            for function, own in ((program, given), (lambda x, w: x @ w, given[:2]))
        ]
    words = f"{before}; {rows}x{inner}x{columns}; {behind}; {kind}"
    return words, texts[0], texts[1]


def examine(number: int, folder: Path, child: Child) -> dict[str, Any]:
    """Return the status of a program's tiles."""
    words, text, bare = draw_program(number)
    known = _find_known(bare, folder, child)
    try:
        found = dict(_build(_read(text, "program", folder, child), child))
    except InputError as error:
        return {"words": words, "refused": str(error), "known": known}
    return {"words": words, "found": found, "known": known}


def _find_known(text: str, folder: Path, child: Child) -> dict[str, str]:
    """Return the status of each tile of a bare product, determined once for each size."""
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.known"
    if not path.exists():
        write_json(dict(_build(_read(text, "bare", folder, child), child)), path)
    known: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return known


def _read(text: str, name: str, folder: Path, child: Child) -> Program:
    path = folder / f"{name}.hlo"
    path.write_text(text, encoding="utf-8")
    (program,) = read_programs(path, child)
    return program


def _build(program: Program, child: Child) -> Iterator[tuple[str, str]]:
    """Yield the status of each tile, by its name."""
    space = program_space.make_collected_space(program, program_space.TILES)
    builder = Builder(child, program, needs_edges=True)
    builder.open()
    for tile in TILES:
        status, note, _ = builder.build(Compile(*space.prepare(find_tile(space, tile))))
        yield ":".join(map(str, tile)), status if status in (SOUND, WRONG) else f"{status} {note}"


def count(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return the number of each outcome, over all tiles and programs."""
    counts: Counter[str] = Counter(programs=len(rows))
    for row in rows:
        counts["programs of which nothing is claimed"] += "refused" in row
        for tile, status in row["known"].items():
            found = row.get("found", {}).get(tile, "not tried")
            is_nonsense = status == WRONG
            counts["nonsense"] += is_nonsense
            counts["nonsense called sound"] += is_nonsense and found == SOUND
            counts["nonsense called wrong"] += is_nonsense and found == WRONG
            counts["right"] += status == SOUND
            counts["right called sound"] += status == SOUND and found == SOUND
            counts["right called wrong"] += status == SOUND and found == WRONG
    return counts


def main() -> None:
    """Examine missing programs, and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=int, default=200)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with Child(LIMITS) as child:
        for number in range(options.programs):
            path = options.folder / f"{number:04}.json"
            if not path.exists():
                write_json(examine(number, options.folder, child), path)
            rows.append(json.loads(path.read_text(encoding="utf-8")))
    for number, row in enumerate(rows):
        told = [
            f"{tile} {status}" + (" (nonsense)" if row["known"][tile] == WRONG else "")
            for tile, status in row.get("found", {}).items()
        ]
        print(f"{number:4} {row['words']}: {', '.join(told) or 'nothing claimed'}")
    for name, value in count(rows).items():
        print(f"{value:6,} {name}")


if __name__ == "__main__":
    main()
