"""Explain the difference of two compiled programs' estimates by changed copies and kernels.

Copies with equal shape and layouts, and kernels with equal canonical form, count as unchanged. The
other kernels are paired by the instruction of the original program that they were compiled from.
All numbers are estimates of the TPU's compiler.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from solution.collecting.tpu.asking import NODE
from solution.collecting.tpu.compiled import CompiledProgram, Copy, Kernel, Tile
from solution.collecting.tpu.estimate import CHIPS, Chip, time_kernel
from solution.collecting.tpu.target import TpuTarget

GONE, NEW, CHANGED = "gone", "new", "changed"
COPY, KERNEL = "copy", "kernel"
LEAST_SHARE = 5e-4  # changes with a smaller share of the default's time are shown only as a sum
SHOWN = 8  # maximum number of changes in a description


@dataclass(frozen=True)
class Change:
    """A copy or kernel that only one of two programs has, or a kernel that differs. Cycles (None:
    unknown) and bytes are summed over a loop's iterations."""

    what: str  # COPY or KERNEL
    how: str  # GONE, NEW or CHANGED
    name: str  # name of the original instruction of the copied tensor, or of the kernel
    shape: str  # shape of the copied tensor, or of the kernel's results, such as f32[16,64]
    bytes: int
    cycles_before: int | None
    cycles_after: int | None
    # layouts of a copy's source and target, or the tiles of a kernel before and after; in words
    detail: str
    # nanoseconds that the change saves / the default program's estimated nanoseconds; negative if
    # the change costs time. None for an asynchronous copy, which runs while kernels compute.
    share: float | None

    def describe(self) -> str:
        """Return the change in a line."""
        share = "beside" if self.share is None else f"{100 * self.share:.1f}%"
        cycles = _spell_cycles(self.cycles_before, self.cycles_after)
        words = [f"{self.what} of {self.name}" if self.what == COPY else f"{KERNEL} {self.name}"]
        words += [f"({self.shape}, {self.bytes:,} bytes)", self.how]
        return f"{share}: {' '.join(words)}{cycles}{f'; {self.detail}' if self.detail else ''}"


@dataclass(frozen=True)
class Savings:
    """The changes between the default program and another, the largest first."""

    changes: tuple[Change, ...]
    total: float  # saved nanoseconds / the default program's estimated nanoseconds

    @property
    def rest(self) -> float:
        """Return the part of the total that no change explains: waiting for asynchronous copies,
        and conditionals, of which only the longest branch counts."""
        return self.total - sum(change.share or 0.0 for change in self.changes)

    def lines(self) -> list[str]:
        """Return lines of text: the largest changes, the sum of the other changes, and `rest`."""
        large = [c for c in self.changes if c.share is None or abs(c.share) >= LEAST_SHARE][:SHOWN]
        others = [c for c in self.changes if c not in large]
        found = [change.describe() for change in large]
        if others:
            found.append(f"{100 * sum(c.share or 0 for c in others):.1f}%: {len(others)} others")
        if abs(self.rest) >= LEAST_SHARE:
            found.append(f"{100 * self.rest:.1f}%: less waiting for copies beside the kernels")
        return found

    def to_records(self) -> list[dict[str, Any]]:
        """Return all changes as dictionaries for a JSON file."""
        return [asdict(change) for change in self.changes]


def compare_compiled(
    default: CompiledProgram,
    other: CompiledProgram,
    estimates: tuple[float, float],
    target: TpuTarget,
) -> Savings:
    """Return the changes from the compiled default to another compiled configuration, and how much
    time they save. `estimates`: nanoseconds of the default and of the other configuration."""
    chip, whole = CHIPS[target.generation], estimates[0]
    changes = [*_compare_copies(default, other, chip, whole),
               *_compare_kernels(default, other, chip, whole)]  # fmt: skip
    # asynchronous copies have no share and come last
    changes.sort(key=lambda change: (change.share is None, -abs(change.share or 0.0)))
    return Savings(tuple(changes), 1 - estimates[1] / whole)


def _compare_copies(
    default: CompiledProgram, other: CompiledProgram, chip: Chip, whole: float
) -> Iterable[Change]:
    before, after = _group_copies(default), _group_copies(other)
    for how, program, own, others in ((GONE, default, before, after), (NEW, other, after, before)):
        kernels = {kernel.name: kernel for kernel in program.kernels}
        for key, copies in own.items():
            # the copies without a match: the other program has only len(others[key]) equal copies
            for copy in copies[len(others[key]) :]:
                yield _describe_copy(copy, how, program, kernels.get(copy.name), chip, whole)


def _group_copies(program: CompiledProgram) -> dict[Any, list[Copy]]:
    found: dict[Any, list[Copy]] = defaultdict(list)
    for copy in program.copies:
        key = copy.shape, copy.source_layout, copy.target_layout, copy.is_beside, copy.trips
        found[key].append(copy)
    return found


def _describe_copy(
    copy: Copy, how: str, program: CompiledProgram, kernel: Kernel | None, chip: Chip, whole: float
) -> Change:
    """Describe a copy of `program` that the other program lacks. `how`: GONE if `program` is the
    default, otherwise NEW. `kernel`: the kernel that makes the copy, if there is one. `whole`: the
    default program's estimated nanoseconds. The share of an asynchronous copy is None."""
    sources = {tensor.name: tensor.source for tensor in program.tensors}
    share = None
    if kernel is not None and not copy.is_beside:
        share = _time(kernel, chip) * (1 if how == GONE else -1) / whole
    cycles = None if copy.cycles is None else copy.cycles * copy.trips
    return Change(
        COPY, how, _shorten(sources.get(copy.tensor, "")) or copy.tensor, copy.shape,
        copy.bytes * copy.trips, cycles if how == GONE else None, cycles if how == NEW else None,
        f"{copy.source_layout} to {copy.target_layout}", share,
    )  # fmt: skip


def _compare_kernels(
    default: CompiledProgram, other: CompiledProgram, chip: Chip, whole: float
) -> Iterable[Change]:
    before, after = (_list_unequal(one, two) for one, two in ((default, other), (other, default)))
    for name in {**before, **after}:
        first, second = before.get(name, []), after.get(name, [])
        paired = min(len(first), len(second))
        for old, new in zip(first[:paired], second[:paired], strict=True):
            yield _describe_kernel(new, CHANGED, (old, new), chip, whole)
        for old in first[paired:]:
            yield _describe_kernel(old, GONE, (old, None), chip, whole)
        for new in second[paired:]:
            yield _describe_kernel(new, NEW, (None, new), chip, whole)


def _list_unequal(program: CompiledProgram, other: CompiledProgram) -> dict[Any, list[Kernel]]:
    """Return the kernels that `other` lacks, {(original instruction, kind): kernels}; kernels that
    copy are excluded."""
    left = Counter((kernel.key, kernel.trips) for kernel in other.kernels)
    found: dict[Any, list[Kernel]] = defaultdict(list)
    for kernel in program.kernels:
        if kernel.opcode == COPY:
            continue
        if left[kernel.key, kernel.trips]:
            left[kernel.key, kernel.trips] -= 1
        else:
            found[kernel.source, kernel.kind].append(kernel)
    return found


def _describe_kernel(
    kernel: Kernel, how: str, both: tuple[Kernel | None, Kernel | None], chip: Chip, whole: float
) -> Change:
    times = [0.0 if one is None else _time(one, chip) for one in both]
    before, after = (
        None if one is None or one.cost.cycles is None else one.cost.cycles * one.trips
        for one in both
    )
    tiles = [_spell_tile(None if one is None else one.cost.tile) for one in both]
    detail = ""
    if how == CHANGED and tiles[0] != tiles[1]:
        detail = f"tile {tiles[0]} to {tiles[1]}"
    elif how == CHANGED and both[0] is not None and both[0].shapes != kernel.shapes:
        detail = f"layout {', '.join(both[0].shapes)} to {', '.join(kernel.shapes)}"
    shapes = ", ".join(shape.partition("{")[0] for shape in kernel.shapes)
    return Change(
        KERNEL, how, f"{_shorten(kernel.source) or kernel.name} ({kernel.kind})", shapes,
        kernel.bytes * kernel.trips, before, after, detail, (times[0] - times[1]) / whole,
    )  # fmt: skip


def _time(kernel: Kernel, chip: Chip) -> float:
    """Return the nanoseconds of all runs of a kernel in one run of the program."""
    return kernel.trips * time_kernel(kernel, chip)


def _spell_tile(tile: Tile | None) -> str:
    """Return a tile in words, such as `output 8x1, input 4x2`; "none" if it has none."""
    sizes: Sequence[tuple[str, tuple[int, ...]]] = [] if tile is None else list(vars(tile).items())
    return ", ".join(f"{name} {'x'.join(map(str, s))}" for name, s in sizes if s) or "none"


def _spell_cycles(before: int | None, after: int | None) -> str:
    if before is None and after is None:
        return ""
    if before is not None and after is not None:
        return f", {before:,} to {after:,} cycles"
    return f", {before or after or 0:,} cycles"


def _shorten(source: str) -> str:
    """Return an op_name without its prefix, the node's number, which RequestWriter adds."""
    first, _, rest = source.partition("/")
    return rest or first if first.startswith(NODE) else source
