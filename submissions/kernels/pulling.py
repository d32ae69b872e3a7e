"""Show the state of a push, and download its outputs completely or not at all.

Complete outputs of notebook NAME replace runs/NAME. Until then they are in runs/kernels/NAME-KEY,
where KEY names the push, and the next pull resumes.
"""

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from solution.runs.folder import find_runs
from solution.sessions.record import (
    KERNEL_RECORD,
    SessionRecord,
    find_damaged,
    find_foreign,
    read_session_record,
)
from solution.system.errors import InputError
from solution.system.files import replace_folder
from solution.system.progress import console
from solution.system.terminal import make_table
from submissions.calls import LockedError, WaitSettings
from submissions.credentials import redact
from submissions.failures import KaggleError
from submissions.kernels.calls import Kernels, KernelSession
from submissions.kernels.notebooks import Notebook, list_notebooks
from submissions.kernels.pushes import Push, lock_records, read_pushes, record, records
from submissions.kernels.pushing import UnknownPushError, reconcile

LOG_LINES = 15
MAX_SHOWN = 3


@dataclass(frozen=True)
class Progress:
    """The progress of a push at Kaggle: the kernel's latest session, and that session's record."""

    push: Push
    session: KernelSession
    # record of the latest session; None while it runs, or if it left no valid record
    record: SessionRecord | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the latest finished session belongs to the push."""
        return self.record is not None and self.record.push == self.push.key

    @property
    def reason(self) -> str:
        """Why the session failed, in Kaggle's words, without a full stop."""
        return self.session.failure.strip().removesuffix(".") or "Kaggle does not say why"

    def describe(self) -> tuple[str, str]:
        """Return the push's state and what the user should do next (empty: nothing), in words."""
        name = self.push.kernel
        if self.session.is_running:
            return self.session.status.lower(), f"wait, or look: {self.push.url}"
        if self.session.has_failed:
            return "failed", f"{self.reason}; `make kernels-pull` brings the log"
        if self.record is None:
            return "unclear", f"its outputs have no {KERNEL_RECORD}; see {self.push.url}"
        if not self.is_ours:
            return "queued", "Kaggle still shows an earlier session; look again in a minute"
        if self.record.state == "stopped":
            return "stopped", f"{self.record.note}; push again with RESUME=1"
        if self.record.state == "running":
            return "broken off", f"push {name} again with RESUME=1"
        return "finished", "" if self.push.state == "pulled" else "make kernels-pull"


def report_progress(kernels: Kernels) -> tuple[Table, list[str]]:
    """Return a table of every notebook's latest push with its state, and lines of advice."""
    columns = ("Notebook", "Commit", "Pushed (UTC)", "State")
    table = make_table("Notebooks on Kaggle, the latest push of each", names=columns)
    lines = []
    for notebook in list_notebooks():
        latest, state, advice = _follow(notebook, kernels)
        commit, when = (latest.commit[:12], latest.when[:16]) if latest else ("", "")
        table.add_row(notebook.name, commit, when.replace("T", " "), state)
        lines += [f"{notebook.name}: {advice.removesuffix('.')}."] if advice else []
    return table, lines


def _follow(notebook: Notebook, kernels: Kernels) -> tuple[Push | None, str, str]:
    """Return the latest push, its state and advice; after a failed query the state is "unknown"."""
    try:
        latest = read_pushes(notebook.name).latest
    except InputError as error:
        return None, "unknown", str(error)
    try:
        if latest is not None and latest.state == "pushing":
            with lock_records(kernels.settings):
                reconcile(notebook, kernels)
                latest = read_pushes(notebook.name).latest
        if latest is None:
            return None, "never pushed", ""
        if latest.state == "failed":
            return latest, "not pushed", latest.note
        return latest, *look(latest, kernels).describe()
    except (UnknownPushError, LockedError, KaggleError) as error:
        return latest, "unknown", str(error)


def look(latest: Push, kernels: Kernels) -> Progress:
    """Ask Kaggle for the kernel's latest session and, once that has ended, for its record. The
    record, kernel.json among the outputs, names the push that started the session."""
    session = kernels.find_session(latest.kernel)
    if session.is_running:
        return Progress(latest, session)
    # a temporary folder, because another process may look at the same time
    with tempfile.TemporaryDirectory() as name:
        kernels.download_output(latest.kernel, Path(name), rf"^{KERNEL_RECORD}$")
        try:
            return Progress(latest, session, read_session_record(Path(name)))
        except InputError:
            return Progress(latest, session)


def pull(notebook: Notebook, settings: WaitSettings, *, replace: bool = False) -> Path:
    """Download the outputs of the latest push; return their folder.

    Complete outputs from an earlier pull are kept; with `replace` they are downloaded again.

    Raises InputError if the outputs are not ready, belong to another push, are incomplete, or would
    overwrite local files; runs/NAME then stays unchanged.
    """
    with lock_records(settings) as held:
        latest = read_pushes(notebook.name).arrived
        if latest is None:
            raise InputError(
                f"{notebook.name}: was never pushed from here, so there is nothing to pull. Push "
                f"it with `make kernels-push NOTEBOOK={notebook.name}`."
            )
        target = find_runs() / notebook.name
        if target.exists() and not target.is_dir():
            raise InputError(
                f"{target}: expected a folder for the outputs, found a file. Move it away."
            )
        if replace or not _is_here(latest, target):
            _bring(latest, target, Kernels(settings, (held,)), replace=replace)
        record(notebook.name, latest.model_copy(update={"state": "pulled"}))
    return target


def _is_here(latest: Push, target: Path) -> bool:
    """Return True if the folder has all outputs of the push; it may have other files as well."""
    try:
        found = read_session_record(target)
    except InputError:
        return False
    return found.push == latest.key and not find_damaged(found, target)


def _bring(latest: Push, target: Path, kernels: Kernels, *, replace: bool) -> None:
    """Download the outputs of the push, and replace the folder `target` by them. Raises InputError
    as `pull` does; with `replace`, local files may be overwritten."""
    if not replace:
        _check_target(latest, target)
    progress = look(latest, kernels)
    state, advice = progress.describe()
    name = progress.push.kernel
    if progress.session.has_failed:
        log = _read_log(progress.push, kernels)
        kept = "" if progress.record else "There are no outputs to download. "
        raise InputError(
            f"{name}: {state}: {log}{progress.reason}. {kept}Mend what failed, then push it again, "
            f"with RESUME=1 to go on from what it kept; see {latest.url}."
        )
    if state != "finished" or progress.record is None:
        raise InputError(f"{name}: {state}. There is nothing to download yet: {advice}.")
    wanted = progress.record
    folder = records() / f"{target.name}-{latest.key}"
    _forget_others(wanted, folder)
    found = _download(latest, folder, kernels)
    if found.commit != latest.commit:
        raise InputError(
            f"{latest.kernel}: ran the code of commit {found.commit}, but {latest.commit} was "
            "pushed. Push it again."
        )
    if not replace:
        _check_target(latest, target)  # check again, because a download may take hours
    # resolve: if `target` is a link, replace the folder behind it. alone: no other pull runs,
    # because the records are locked.
    with replace_folder(target.resolve(), alone=True) as temporary:
        # Copy the recorded outputs and the log, but not Jupyter's files.
        hidden = shutil.ignore_patterns(".*", "__*")
        shutil.copytree(folder, temporary, dirs_exist_ok=True, ignore=hidden)
    shutil.rmtree(folder)


def _check_target(latest: Push, target: Path) -> None:
    """Raise InputError if the download would overwrite files that were made or changed locally."""
    # Kaggle writes the log, so the record of the session does not list it.
    log = f"{latest.kernel.partition('/')[2]}.log"
    mine = [name for name in find_foreign(target) if name != log]
    if mine:
        shown = ", ".join(mine[:MAX_SHOWN]) + (", ..." if len(mine) > MAX_SHOWN else "")
        raise InputError(
            f"{target}: has files that were made or changed here and would be overwritten: "
            f"{shown}. Move it away, or give --replace (make: REPLACE=1)."
        )


def _forget_others(wanted: SessionRecord, folder: Path) -> None:
    """Delete the files of an interrupted pull in `folder` if their session record is damaged, or is
    of other outputs than Kaggle has now. `wanted`: the session record of Kaggle's outputs."""
    with suppress(InputError):
        if not (folder / KERNEL_RECORD).is_file() or read_session_record(folder) == wanted:
            return
    shutil.rmtree(folder)


def _read_log(latest: Push, kernels: Kernels) -> str:
    """Return the last lines of the session's log (empty: no log); keep the log under records()."""
    folder = records() / f"{latest.key}-log"
    try:
        kernels.download_output(latest.kernel, folder, "^$")
    except KaggleError:
        return ""
    logs = sorted(folder.glob("*.log"))
    if not logs:
        return ""
    lines = redact(logs[0].read_text(encoding="utf-8", errors="replace")).splitlines()
    return "\n".join([f"the log, kept in {logs[0]}, ends with", *lines[-LOG_LINES:], ""])


def _download(latest: Push, folder: Path, kernels: Kernels) -> SessionRecord:
    """Download until every file has the checksum that the session recorded. Raises InputError if
    the outputs are of another push, or some files stay damaged."""
    damaged: list[str] = []
    for _ in range(kernels.settings.tries):
        with console.status("Downloading") as status:

            def report() -> None:
                count = sum(path.is_file() for path in folder.rglob("*"))
                status.update(f"Downloading: {count:,} files are here")  # noqa: B023

            kernels.download_output(latest.kernel, folder, report=report)
        try:
            found = read_session_record(folder)
        except InputError:
            # Delete the invalid record, because the CLI keeps existing files.
            (folder / KERNEL_RECORD).unlink(missing_ok=True)
            raise
        if found.push != latest.key:
            shutil.rmtree(folder)
            raise InputError(
                f"{latest.kernel}: Kaggle's outputs belong to "
                f"{f'push {found.push}' if found.push else 'a push by a person'}, expected "
                f"push {latest.key}: a newer session has started. Look at {latest.url}."
            )
        damaged = find_damaged(found, folder)
        if not damaged:
            return found
        for name in damaged:  # the CLI would keep an existing file, even an error page
            (folder / name).unlink(missing_ok=True)
    shown = ", ".join(damaged[:MAX_SHOWN])
    raise InputError(
        f"{latest.kernel}: {len(damaged)} of {len(found.files)} files arrived damaged, such as "
        f"{shown}. Run the same command again: it downloads these."
    )
