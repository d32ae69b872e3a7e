"""Collect one program: draw configurations, label them, write the graph."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solution.collecting import records
from solution.collecting.cpu import CpuTarget
from solution.collecting.journal import VERSION, Journal
from solution.collecting.program_space import ProgramSpace
from solution.collecting.target import LabelWorkers, Target, Tell
from solution.collecting.timing import Outcome
from solution.programs.child import Limits
from solution.programs.program import Program, Wanted
from solution.system.files import remove
from solution.system.wording import count

MIN_CONFIGS = 8  # a graph with fewer configurations is not written
ROUNDS = 3  # configurations are drawn in this many rounds; later rounds may vary the fastest so far
MUCH_MORE = 1.5  # a collection out of time is resumed if the new limit exceeds this many old ones


@dataclass(frozen=True)
class Settings:
    """Settings for collecting a program, that is labelling its configurations as training data."""

    configs: int = 60  # number of correct configurations to collect
    seconds: float = 180.0  # time limit of a program
    seed: int = 0
    limits: Limits = Limits()
    keep_flat: bool = False  # write the graph even if its labels are useless (Outcome.is_flat)
    replace: bool = False  # delete an earlier collection of the program
    wanted: Wanted | None = None  # which programs of a file to collect; None: all
    arguments: Path | None = None  # file with the arguments, for a single program
    target: Target = CpuTarget()


class ProgramCollection:
    """Collects one program: draws and labels configurations, writes the graph. A collection that
    was stopped is resumed."""

    def __init__(
        self,
        program: Program,
        space: ProgramSpace,
        destination: records.Destination,
        settings: Settings,
        workers: LabelWorkers,
    ) -> None:
        self._program, self._space, self._destination = program, space, destination
        self._settings, self._workers = settings, workers
        folder = destination.find("log", program.name)
        # program, machine and settings, which must be equal to resume a collection
        identity = {
            "journal version": VERSION,
            "collection": destination.collection,
            "kind": space.kind,
            "seed": settings.seed,
            **workers.identify(program),
        }
        if settings.replace and folder.exists():
            remove(folder)
            records.remove_graph(destination, program.name)
        self.journal = Journal(folder, identity, settings.target.schema)
        self._labels = workers.start(program, space, self.journal, settings.seed)

    def run(self, tell: Tell) -> dict[str, Any]:
        """Collect until the order of the runtimes is settled or the time is over; return the
        summary, which the journal stores. `tell` gets a description of the current work. Raises
        InputError if the default cannot be compiled."""
        if self._is_done:
            return self._finish_again()
        begin = time.monotonic()
        self._labels.open(tell, self._settings.configs)
        share = self._workers.compiling_share
        is_cut = not self._draw(begin + share * self._settings.seconds, tell)
        self._labels.finish(begin + self._settings.seconds, tell)
        return self._finish(time.monotonic() - begin, is_cut=is_cut)

    @property
    def _is_done(self) -> bool:
        """Return True if an earlier command finished the collection and this command asks for no
        more configurations. Return False if the earlier command ran out of time and this command's
        time limit is much longer (MUCH_MORE)."""
        state = self.journal.state
        has_time = state.get("cut") and self._settings.seconds > MUCH_MORE * state["allowed"]
        is_final = self.journal.is_finished
        return is_final and self._settings.configs <= state["asked"] and not has_time

    def _finish_again(self) -> dict[str, Any]:
        """Return the stored summary; write the graph again if its files are missing."""
        state = self.journal.state
        is_kept = "npz" in state or self._settings.keep_flat
        if is_kept and not records.has_graph(self._destination, self._program.name):
            written = self._write(self._labels.summarise())
            self.journal.finish(state | {"npz": written}, is_final=True)
        return self.journal.state

    def _draw(self, deadline: float, tell: Tell) -> bool:
        """Draw and label configurations until enough are correct, no new ones are found, or too
        many failed; return False if the deadline came first."""
        wanted, labels = self._settings.configs, self._labels
        # maximum number of attempts; stop if half of them fail, because others would fail, too
        most = 2 * wanted
        for number in range(1, ROUNDS + 1):
            begin, end = wanted * (number - 1) // ROUNDS, wanted * number // ROUNDS
            while (sound := len(self.journal.sound())) < end:
                known = len(self.journal.candidates)
                if known >= most:
                    return True
                drawn = labels.draw(min(labels.batch, end - sound, most - known), begin)
                if not len(drawn):
                    return True
                if time.monotonic() > deadline:
                    return False
                labels.label(drawn)
                sound = len(self.journal.sound())
                tell(f"compiled {len(self.journal.candidates)}, sound {sound} of {wanted}")
            labels.look()
        return True

    def _finish(self, seconds: float, *, is_cut: bool) -> dict[str, Any]:
        outcome = self._labels.summarise()
        summary = self._describe(outcome, seconds)
        # The collection stays unfinished if it has too few configurations for a graph, for example
        # because the time was short. The same command then resumes it.
        is_final = len(outcome.configs) >= MIN_CONFIGS
        if is_final:
            reason = "flat" if outcome.is_flat else ""
        else:
            reason = f"only {count(len(outcome.configs), 'configuration')}"
        if not reason or (self._settings.keep_flat and is_final):
            summary["npz"] = self._write(outcome)
        else:
            records.remove_graph(self._destination, self._program.name)
        summary |= {"left_out": reason, "cut": is_cut, "allowed": self._settings.seconds}
        self.journal.finish(summary, is_final=is_final)
        return self.journal.state

    def _write(self, outcome: Outcome) -> str:
        """Write the graph; return its npz file's path relative to the destination's folder."""
        times = dict(zip(outcome.configs, outcome.nanoseconds.tolist(), strict=True))
        rows = self.journal.candidates.select("config", "values").iter_rows()
        measured = [(self._space.from_bytes(data), times.get(name, 0)) for name, data in rows]
        _, npz = records.write_graph(
            self._program, self._space, measured, self._destination, self._workers.label_source
        )
        return str(npz.relative_to(self._destination.folder))

    def _describe(self, outcome: Outcome, seconds: float) -> dict[str, Any]:
        counts = self.journal.candidates["status"].value_counts()
        return {
            "asked": self._settings.configs,
            "configs": len(outcome.configs),
            "statuses": dict(counts.iter_rows()),
            "failure": self.journal.find_failure(),
            "spread": outcome.spread,
            "seconds": seconds,
            **self._labels.describe(),
        }
