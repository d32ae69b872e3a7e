"""Store a submission with its provenance, in a folder named by the submission's unique KEY.

submissions/sent/KEY/
    submission.csv      the bytes that are uploaded
    provenance.json     recipe, experiments, scores, data; the commits that merged and that trained
    scores.csv          the out-of-fold table
    uncommitted.diff    differences from the commit, if a dirty tree was allowed
"""

import hashlib
import re
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from solution.runs.fingerprint import fingerprint_code
from solution.runs.folder import Run
from solution.system.commit import LEDGER
from solution.system.errors import InputError
from solution.system.files import replace_folder, write_json
from solution.system.refusals import name_full_disk
from solution.system.wording import count, join_names
from submissions.build import Built
from submissions.credentials import redact
from submissions.ledger import OOF_COLUMNS

PROJECT = Path(__file__).parent.parent
FINGERPRINT = 16  # hexadecimal digits of a SHA-256 that identify a file
MAX_SHOWN = 5
DIRTY = "-dirty"  # suffix of a commit's name if there were uncommitted changes
DIFF = [  # Options that make git's output independent of the user's settings.
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
]
CODE = (".py", ".toml")  # suffixes of untracked files that can change predictions


@dataclass(frozen=True)
class SourceTree:
    """The commit of the code, and its uncommitted changes."""

    commit: str  # name of the commit; empty if the code is not in a git checkout
    changed: tuple[str, ...]  # paths of changed files
    difference: str  # the uncommitted changes, as `git diff` prints them
    defect: str = ""  # why git cannot tell the commit of a checkout; empty if it can

    def check_clean(self) -> None:
        """Raise InputError if there are uncommitted changes, or git cannot tell."""
        if self.defect:
            raise InputError(
                f"{PROJECT}: git does not tell the commit: {self.defect}. Without it a score "
                "cannot be traced to code. Do what git says, or give --allow-dirty (make: DIRTY=1)."
            )
        if self.changed:
            raise InputError(
                f"{PROJECT}: {count(len(self.changed), 'file')} not committed: "
                f"{join_names(self.changed, MAX_SHOWN)}. Commit them, so that the score can be "
                "traced to code; or give --allow-dirty (make: DIRTY=1) to record the difference."
            )


def read_tree() -> SourceTree:
    """Return the commit and the uncommitted changes of the project, except changes of the ledger.

    Of untracked files, only files with a suffix in CODE count as changes.
    """
    commit, said = (text.strip() for text in _ask_git("rev-parse", "HEAD"))
    if not commit and (PROJECT / ".git").exists():
        return SourceTree("", (), "", redact(said).partition("\n")[0] or "no commit was found")
    if not commit or not (PROJECT / "pyproject.toml").is_file():  # the project is no checkout
        return SourceTree("", (), "")
    here = ["--", ".", f":(exclude){LEDGER}"]
    tracked = _git(*DIFF, "HEAD", "--name-only", "-z", *here).split("\0")
    foreign = _git("ls-files", "--others", "--exclude-standard", "-z", *here).split("\0")
    added = sorted(path for path in foreign if path.endswith(CODE))
    parts = [_git(*DIFF, "HEAD", "--binary", *here)]
    parts += [_git(*DIFF, "--no-index", "--", "/dev/null", path) for path in added]
    return SourceTree(commit, tuple(filter(None, [*tracked, *added])), redact("".join(parts)))


def _git(*command: str) -> str:
    return _ask_git(*command)[0]


def _ask_git(*command: str) -> tuple[str, str]:
    """Run git in the project; return its output (empty if it failed) and its error message."""
    try:
        done = subprocess.run(
            ["git", "-C", str(PROJECT), *command], capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return "", f"it cannot be run ({error.strerror})"
    differs = "--no-index" in command and done.returncode == 1
    return done.stdout if done.returncode == 0 or differs else "", done.stderr


@dataclass(frozen=True)
class Upload:
    """A submission with its provenance; each attempt to send it has a different key."""

    file: Path
    content: bytes  # the file's bytes, read once, and sent even if the file changes later
    fingerprint: str  # first digits of the content's SHA-256
    facts: dict[str, Any]  # content of provenance.json, except the key
    tree: SourceTree
    scores: bytes  # content of scores.csv

    @property
    def values(self) -> dict[str, str]:
        """The upload's values for its row of the ledger, by column."""
        scores = self.facts["scores"]
        return {
            "recipe": self.facts["recipe"]["name"],
            "experiments": "+".join(self.facts["experiments"]),
            "commit": _shorten(self.facts["trained"] or self.facts["commit"], self.tree),
            "data": self.facts["data"],
            "file": self.fingerprint,
            **{OOF_COLUMNS[n]: f"{scores[n]:.4f}" for n in OOF_COLUMNS if n in scores},
            "oof_mean": f"{scores['mean']:.4f}" if "mean" in scores else "",
        }

    def message(self, key: str) -> str:
        """Return the message sent with the file: one ASCII line "key=... file=... commit=..."."""
        facts = {"key": key, **self.values, "oof": self.values["oof_mean"]}
        shown = ("key", "file", "commit", "recipe", "oof")
        words = [f"{name}={_plain(str(facts[name]))}" for name in shown if facts[name]]
        return " ".join(words)

    def store(self, sent: Path, key: str) -> Path:
        """Write the file and its provenance to sent/KEY, atomically; return the written path."""
        with name_full_disk(sent), replace_folder(sent / key) as folder:
            (folder / "submission.csv").write_bytes(self.content)
            (folder / "scores.csv").write_bytes(self.scores)
            write_json({"key": key, **self.facts}, folder / "provenance.json")
            if self.tree.difference:
                path = folder / "uncommitted.diff"
                path.write_text(self.tree.difference, encoding="utf-8", errors="replace")
        return sent / key / "submission.csv"


def make_key(now: datetime) -> str:
    """Return a new unique key, such as 20261121T073012-9f3c0e12."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def pack_submission(built: Built, tree: SourceTree) -> Upload:
    """Read the submission that was built, with its provenance. Raises InputError if the file has
    changed since it was built."""
    run, content = built.run.record(), built.written.path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if built.written.description != f"{len(content)}:{digest}":
        raise InputError(f"{built.written.path}: changed during the command. Run it again.")
    fingerprint = digest[:FINGERPRINT]
    facts = {
        "packed": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256_start": fingerprint,
        "rows": built.written.rows,
        "rows_copied_from_sample": built.written.kept,
        "recipe": built.recipe.model_dump(mode="json"),
        "experiments": built.members,
        "scores": {name: round(value, 6) for name, value in built.scores.of_ensemble().items()},
        "data": str(run["settings"].get("data", "")),
        "trained": run.get("commit"),
        "commit": tree.commit,
        "changed": list(tree.changed),
        "run": {"folder": str(built.run.folder), **run},
    }
    scores = built.run.scores.read_bytes()
    return Upload(built.written.path, content, fingerprint, facts, tree, scores)


def describe_code(run: Run, tree: SourceTree) -> str:
    """Return a warning if the run was made by other code or at another commit than the tree's. The
    text is empty if there is nothing to warn of."""
    record = run.record()
    made, here = record.get("commit") or "", tree.commit + (DIRTY if tree.changed else "")
    same = record.get("code") in (None, fingerprint_code())
    if same and made in ("", here):
        return ""
    where = f"at commit {made or 'not known'} and is merged at {here or 'not known'}"
    if tree.commit and made.removesuffix(DIRTY) == tree.commit:
        where = f"at commit {tree.commit} and is merged there, with other uncommitted changes"
    return (
        f"The run was made {where}. The code that decides predictions "
        f"{'is the same' if same else 'differs'}. The ledger names "
        f"{_shorten(made or tree.commit, tree) or 'no commit'}."
    )


def _shorten(commit: str, tree: SourceTree) -> str:
    """Return 12 digits of the commit, with the suffix -dirty if there were uncommitted changes."""
    is_dirty = commit.endswith(DIRTY) or tree.changed
    return commit.removesuffix(DIRTY)[:12] + (DIRTY if is_dirty else "")


def fingerprint_file(path: Path) -> str:
    """Return the first digits of a submission's SHA-256, which identify it in the ledger."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:FINGERPRINT]


def _plain(text: str) -> str:
    """Return the text, at most 48 characters, with underscores for characters that would break the
    message's format."""
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text)[:48]
