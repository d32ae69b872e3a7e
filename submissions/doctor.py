"""Check everything that a submission needs, and give advice, without printing a secret."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

from packaging.version import InvalidVersion, Version
from rich.table import Table
from rich.text import Text

from solution.runs.folder import find_runs
from solution.runs.record import LIBRARIES
from solution.system.accelerators import describe_accelerators
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import make_table
from solution.system.wording import count
from submissions.calls import NOT_PASSED_ON, WaitSettings, find_program
from submissions.credentials import VARIABLES, find_credentials
from submissions.failures import BAD_CREDENTIALS, NO_CREDENTIALS
from submissions.kaggle import Kaggle
from submissions.ledger import read_ledger
from submissions.provenance import read_tree

OLDEST_CLI = Version("2.2.4")  # the first version that reports the remaining submissions
DATA_GIGABYTES = 30  # size of the download and its unpacked files
LEAST_GIGABYTES = 1


@dataclass(frozen=True)
class Finding:
    """A row of the table that `fastslow doctor` prints: what was checked, the result, advice."""

    subject: str
    found: str
    advice: str = ""
    stops: bool = False  # True: a defect that must be fixed before a submission is possible


def examine(settings: WaitSettings) -> list[Finding]:
    """Check everything that a submission needs; Kaggle is queried once."""
    libraries = (*LIBRARIES, "kaggle")
    return [
        _examine_cli(settings),
        _examine_credentials(),
        _examine_access(settings),
        *_examine_variables(),
        _examine_ledger(settings),
        _examine_tree(),
        _examine_disk(),
        Finding("Python", f"{platform.python_version()} on {platform.system()}"),
        Finding("Libraries", ", ".join(f"{n} {metadata.version(n)}" for n in libraries)),
        Finding("GPU", describe_accelerators()),
    ]


def tabulate_findings(findings: list[Finding]) -> Table:
    """Return the table of findings, 80 columns wide."""
    table = make_table(names=("", "What"), texts=("Found", "What to do"))
    for finding in findings:
        mark = "stop" if finding.stops else "note" if finding.advice else "ok"
        style = {"stop": "bold red", "note": "yellow", "ok": "green"}[mark]
        # Text, because rich would read brackets as markup
        found, advice = Text(finding.found), Text(finding.advice)
        table.add_row(f"[{style}]{mark}[/]", finding.subject, found, advice)
    return table


def _examine_cli(settings: WaitSettings) -> Finding:
    subject = "kaggle CLI"
    try:
        version = Kaggle(settings).version()
    except (InputError, OSError, subprocess.SubprocessError) as error:
        return Finding(subject, str(error), "Run `make test`, which installs it.", stops=True)
    try:
        is_old = Version(version) < OLDEST_CLI
    except InvalidVersion:
        advice = "It does not start: check if your home folder is writable; run `kaggle --version`."
        return Finding(subject, find_program(), advice, stops=True)
    if is_old:
        return Finding(subject, version, "Update it: pip install --upgrade kaggle", stops=True)
    return Finding(subject, version)


def _examine_credentials() -> Finding:
    found = find_credentials()
    if not found:
        return Finding("Credentials", "none", NO_CREDENTIALS.advice, stops=True)
    used, *hidden = found
    shown = f"{used.method} from {used.source}"
    if used.defect:
        shown += f": {used.defect}"
        return Finding("Credentials", shown, BAD_CREDENTIALS.advice, stops=True)
    advice = []
    if used.exposed:
        advice.append(f"Others can read it: chmod 600 {used.path}.")
    if hidden:
        others = ", ".join(f"{other.method} in {other.source}" for other in hidden)
        advice.append(f"It hides: {others}. Remove it if it is old.")
    padded = [name for name in VARIABLES if (value := os.environ.get(name, "")) != value.strip()]
    if padded:
        words = "White space around the value is removed here, but breaks `kaggle` itself."
        advice.append(f"{', '.join(padded)}: {words}")
    return Finding("Credentials", shown, " ".join(advice))


def _examine_access(settings: WaitSettings) -> Finding:
    if not find_credentials() or find_credentials()[0].defect:
        return Finding("Submissions", "not asked", "Needs credentials.")
    try:
        limits = Kaggle(settings).ask_limits()
        if limits is None:
            Kaggle(settings).list_submissions()  # fails if there is no such competition
    except (InputError, OSError) as error:
        return Finding("Submissions", "no answer", str(error), stops=True)
    if limits is None:
        advice = "Nothing: a submission can still be sent."
        return Finding("Submissions", "Kaggle does not say how many are left", advice)
    found = f"{limits.numAllowedNow} left now, {limits.numToday} made today"
    if limits.numAllowedNow > 0:
        return Finding("Submissions", found)
    url = f"https://www.kaggle.com/competitions/{settings.competition}"
    advice = f"Wait for the next day (UTC); if none was made today, join at {url}."
    return Finding("Submissions", found, advice, stops=True)


def _examine_variables() -> list[Finding]:
    present = ", ".join(name for name in NOT_PASSED_ON if os.environ.get(name))
    advice = "They make the CLI print keys or change its target; the commands here ignore them."
    return [Finding("Variables", present, advice)] if present else []


def _examine_ledger(settings: WaitSettings) -> Finding:
    found = "not readable"
    try:
        ledger = read_ledger(settings.ledger)
        found = count(len(ledger.lines), "line")
        check_writable(settings.ledger.parent)
    except InputError as error:
        return Finding("Ledger", found, str(error), stops=True)
    in_doubt = ", ".join(line["key"] for line in ledger.in_doubt())
    advice = f"Unknown whether {in_doubt} arrived: `make submit` looks first." if in_doubt else ""
    return Finding("Ledger", found, advice)


def _examine_tree() -> Finding:
    tree = read_tree()
    if tree.defect:
        advice = "Do what git says, or --allow-dirty: submissions will not name a commit."
        return Finding("Code", tree.defect, advice)
    if not tree.commit:
        return Finding("Code", "no git checkout", "Submissions will not name a commit.")
    changed = count(len(tree.changed), "file")
    advice = f"{changed} not committed: commit, or --allow-dirty." if tree.changed else ""
    return Finding("Code", f"commit {tree.commit[:12]}", advice)


def _examine_disk() -> Finding:
    runs = find_runs().resolve()
    folder = next(path for path in (runs, *runs.parents) if path.is_dir())
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.0f} GB free"
    if free < LEAST_GIGABYTES:
        return Finding("Disk", found, f"Free some space on the disk of {folder}.", stops=True)
    advice = f"`make data` needs about {DATA_GIGABYTES} GB." if free < DATA_GIGABYTES else ""
    return Finding("Disk", found, advice)
