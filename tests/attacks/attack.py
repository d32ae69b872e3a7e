"""Attacks by the thousand: processes that read mutated files, watched by one that counts.

`python -m tests.attacks.attack 10000 [KIND ...]` prints the table of the kinds; without a number,
that of the last `make attack`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.attacks.kinds import KINDS
from tests.attacks.trial import HANG, OUTCOMES, PROGRESS, SIGNAL, note

REPOSITORY = Path(__file__).parents[2]
KEPT = REPOSITORY / "build" / "attacks"  # what `make attack` found, a file a kind
PATIENCE = 60  # seconds without an answer; a file takes milliseconds
TO_BEGIN = 300  # seconds: a start takes some, and on a busy machine many
MAX_DEATHS = 20  # of processes, after which no more is learned
ONE_THREAD = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}  # the files are small


@dataclass
class Outcomes:
    """What became of the mutations of each kind."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[dict[str, object]] = field(default_factory=list)

    def describe_failures(self) -> str:
        return "\n".join(json.dumps(failure) for failure in self.failures[:20])


def attack(names: Sequence[str], count: int) -> Outcomes:
    """Read `count` mutations of each of the kinds."""
    with tempfile.TemporaryDirectory(prefix="attack-") as place_of_all:
        folder = Path(place_of_all)
        folder.chmod(0o755)  # the readers are nobody
        for name in ("outcomes.jsonl", "progress"):
            (folder / name).touch()
            (folder / name).chmod(0o666)
        place = number = 0
        for _ in range(MAX_DEATHS):
            (folder / "progress").write_bytes(PROGRESS.pack(place, -1))
            outcome, said = _watch(folder, names, place, number, count)
            if not outcome:
                break
            place, at = PROGRESS.unpack((folder / "progress").read_bytes())
            if at < 0:
                raise AssertionError(f"{names[place]}: cannot be made: {said}")
            note(folder, names[place], at, "", outcome, said)
            number = at + 1
        return _collect(folder)


def _watch(
    folder: Path, names: Sequence[str], place: int, number: int, count: int
) -> tuple[str, str]:
    """Run one process; how it died, if it did, and what it said."""
    command = [sys.executable, "-m", "tests.attacks.trial", str(folder)]
    command += [str(place), str(number), str(count), *names]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env={**os.environ, **ONE_THREAD}, stderr=said,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seen, since = b"", time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            now = (folder / "progress").read_bytes()
            if now != seen:
                seen, since = now, time.monotonic()
            patience = PATIENCE if PROGRESS.unpack(now)[1] >= 0 else TO_BEGIN
            if time.monotonic() - since > patience:
                process.kill()
                process.wait()
                return HANG, f"no answer within {patience} seconds"
    text = (folder / "said").read_text(errors="replace")[-2000:]
    return (SIGNAL, f"exit {process.returncode}: {text}") if process.returncode else ("", "")


def _collect(folder: Path) -> Outcomes:
    found = Outcomes()
    for line in (folder / "outcomes.jsonl").read_text().splitlines():
        facts = json.loads(line)
        own = found.counts.setdefault(facts["kind"], dict.fromkeys(OUTCOMES, 0))
        for outcome, number in facts.get("counts", {}).items():
            own[outcome] += number
        if "outcome" in facts:
            found.failures.append(facts)
            if facts["outcome"] in (SIGNAL, HANG):  # who died could not count it
                own[facts["outcome"]] += 1
    return found


def tabulate(found: Outcomes) -> str:
    """A line a kind."""
    lines = [f"{'kind':24}" + "".join(f"{name:>11}" for name in ("mutations", *OUTCOMES))]
    for name, counts in found.counts.items():
        numbers = [sum(counts.values()), *counts.values()]
        lines.append(f"{name:24}" + "".join(f"{number:>11,}" for number in numbers))
    return "\n".join(lines)


def keep(found: Outcomes) -> None:
    """Write down how often each outcome was met."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, counts in found.counts.items():
        path = KEPT / f"{name.replace(', ', '-').replace(' ', '-')}.json"
        path.write_text(json.dumps({name: counts}))


def main() -> None:
    if len(sys.argv) == 1:
        found = Outcomes()
        for kept in sorted(KEPT.glob("*.json")):
            found.counts |= json.loads(kept.read_text())
    else:
        found = attack(sys.argv[2:] or [kind.name for kind in KINDS], int(sys.argv[1]))
    print(tabulate(found))
    print(found.describe_failures())
    sys.exit(bool(found.failures))


if __name__ == "__main__":
    main()
