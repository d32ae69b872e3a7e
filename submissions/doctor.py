"""Check everything that a submission needs, with advice. Prints no secret."""

import os
import platform
import shutil
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata

from packaging.version import InvalidVersion, Version
from rich.table import Table
from rich.text import Text

from solution.runs.folder import find_runs
from solution.runs.record import LIBRARIES
from solution.system.accelerators import describe_accelerators, find_gpus
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
from submissions.sending import SKEW

OLDEST_CLI = Version("2.2.4")  # the first version that reports the remaining submissions
GIGABYTE = 1e9
DATA_GIGABYTES = 30  # the download and its unpacked files
LEAST_GIGABYTES = 1


@dataclass(frozen=True)
class Finding:
    """A row of the doctor's table."""

    subject: str
    found: str
    advice: str = ""
    stops: bool = False  # a submission is impossible until it is fixed


def examine(settings: WaitSettings) -> list[Finding]:
    """Check everything that a submission needs; Kaggle is queried once."""
    return [
        _examine_cli(settings),
        *_examine_credentials(),
        _examine_access(settings),
        _examine_clock(settings),
        *_examine_variables(),
        _examine_ledger(settings),
        _examine_tree(),
        _examine_disk(),
        Finding("Python", f"{platform.python_version()} on {platform.system()}"),
        Finding("Libraries", _list_versions()),
        _examine_gpu(),
    ]


def tabulate_findings(findings: list[Finding]) -> Table:
    """Return the doctor's table, 80 columns wide."""
    table = make_table()
    table.add_column("", no_wrap=True)
    table.add_column("What", no_wrap=True)
    table.add_column("Found", overflow="fold")
    table.add_column("What to do", overflow="fold")
    for finding in findings:
        mark = "stop" if finding.stops else "note" if finding.advice else "ok"
        style = {"stop": "bold red", "note": "yellow", "ok": "green"}[mark]
        found, advice = Text(finding.found), Text(finding.advice)  # Text: brackets are not markup
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
        advice = "It does not start: is your home folder writable? Run `kaggle --version`."
        return Finding(subject, find_program(), advice, stops=True)
    if is_old:
        return Finding(subject, version, "Update it: pip install --upgrade kaggle", stops=True)
    return Finding(subject, version)


def _examine_credentials() -> list[Finding]:
    found = find_credentials()
    if not found:
        return [Finding("Credentials", "none", NO_CREDENTIALS.advice, stops=True)]
    used, *hidden = found
    shown = f"{used.method} from {used.source}"
    if used.defect:
        advice = BAD_CREDENTIALS.advice
        return [Finding("Credentials", f"{shown}: {used.defect}", advice, stops=True)]
    advices = []
    if used.exposed:
        advices.append(f"Others can read it: chmod 600 {used.path}.")
    if hidden:
        others = ", ".join(f"{other.method} in {other.source}" for other in hidden)
        advices.append(f"It hides: {others}. Remove it if it is old.")
    padded = [name for name in VARIABLES if (value := os.environ.get(name, "")) != value.strip()]
    if padded:
        words = "White space around it is left out here, and breaks `kaggle` itself."
        advices.append(f"{', '.join(padded)}: {words}")
    return [Finding("Credentials", shown, " ".join(advices))]


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
        advice = "Nothing: a submission can be sent all the same."
        return Finding("Submissions", "Kaggle does not say how many are left", advice)
    found = f"{limits.numAllowedNow} left now, {limits.numToday} made today"
    if limits.numAllowedNow > 0:
        return Finding("Submissions", found)
    url = f"https://www.kaggle.com/competitions/{settings.competition}"
    advice = f"Wait for the next day (UTC); where none was made, join at {url}."
    return Finding("Submissions", found, advice, stops=True)


def _examine_clock(settings: WaitSettings) -> Finding:
    local = os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST"
    url = "http://localhost" if local else "https://www.kaggle.com"
    theirs = _ask_date(url, min(settings.call_seconds, 20.0))
    if theirs is None:
        return Finding("Clock", "not compared, no answer", "Check the network.")
    skew = (theirs - datetime.now(UTC)).total_seconds()
    if abs(skew) < SKEW:
        return Finding("Clock", f"within {max(1, abs(skew)):.0f} s of Kaggle's")
    direction = "behind" if skew > 0 else "ahead of"
    advice = "Set it: timedatectl set-ntp true. A wrong clock breaks sign-in and times."
    return Finding("Clock", f"{abs(skew) / 60:.0f} minutes {direction} Kaggle's", advice)


def _ask_date(url: str, seconds: float) -> datetime | None:
    """Return the Date header of any response; no credentials are sent."""
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            header = answer.headers["Date"]
    except urllib.error.HTTPError as error:
        header = error.headers["Date"]
    except (OSError, ValueError):
        return None
    try:
        return parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None


def _examine_variables() -> list[Finding]:
    present = [name for name in NOT_PASSED_ON if os.environ.get(name)]
    if not present:
        return []
    advice = "They make the CLI print keys or go elsewhere; the commands here leave them out."
    return [Finding("Variables", ", ".join(present), advice)]


def _examine_ledger(settings: WaitSettings) -> Finding:
    path = settings.ledger
    try:
        ledger = read_ledger(path)
    except InputError as error:
        return Finding("Ledger", "not readable", str(error), stops=True)
    found = count(len(ledger.lines), "line")
    try:
        check_writable(path.parent)
    except InputError as error:
        return Finding("Ledger", found, str(error), stops=True)
    open_lines = [line["key"] for line in ledger.in_doubt()]
    if open_lines:
        advice = f"Unknown whether {', '.join(open_lines)} arrived: `make submit` looks first."
        return Finding("Ledger", found, advice)
    return Finding("Ledger", found)


def _examine_tree() -> Finding:
    tree = read_tree()
    if tree.defect:
        advice = "Do what git says, or --allow-dirty: submissions will not name a commit."
        return Finding("Code", tree.defect, advice)
    if not tree.commit:
        return Finding("Code", "no git checkout", "Submissions will not name a commit.")
    found = f"commit {tree.commit[:12]}"
    if tree.changed:
        advice = f"{count(len(tree.changed), 'file')} not committed: commit, or --allow-dirty."
        return Finding("Code", found, advice)
    return Finding("Code", found)


def _examine_disk() -> Finding:
    runs = find_runs().resolve()
    folder = next(path for path in (runs, *runs.parents) if path.is_dir())
    free = shutil.disk_usage(folder).free / GIGABYTE
    found = f"{free:.0f} GB free"
    if free < LEAST_GIGABYTES:
        return Finding("Disk", found, f"Free some space on the disk of {folder}.", stops=True)
    if free < DATA_GIGABYTES:
        return Finding("Disk", found, f"`make data` needs about {DATA_GIGABYTES} GB.")
    return Finding("Disk", found)


def _list_versions() -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in (*LIBRARIES, "kaggle"))


def _examine_gpu() -> Finding:
    try:
        return Finding("GPU", describe_accelerators(find_gpus()))
    except InputError as error:
        return Finding("GPU", str(error), "Look at the driver.")
