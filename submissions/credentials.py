"""Which credentials the kaggle CLI will use, found in its own order; and how secrets stay hidden.

Values are read for two purposes only: to know that they are there, and to blank them out of
everything that is printed or written. They are never passed on: the CLI finds them by itself.
"""

import base64
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

HIDDEN = "***"
SHORTEST_SECRET = 6  # what is shorter would blank out ordinary words


@dataclass(frozen=True)
class Credentials:
    """One of the places where the CLI looks."""

    source: str  # as a person would name it
    method: str  # access token, legacy key or OAuth
    path: Path | None = None  # the file, where it is one

    @property
    def exposed(self) -> bool:
        """Whether other users of this machine can read the file."""
        return self.path is not None and bool(self.path.stat().st_mode & (stat.S_IRWXG | 0o007))


def config_folder() -> Path:
    """Where kaggle.json lies."""
    if os.environ.get("KAGGLE_CONFIG_DIR"):
        return Path(os.environ["KAGGLE_CONFIG_DIR"])
    home = Path.home() / ".kaggle"
    if home.is_dir():
        return home
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kaggle"


def find_credentials() -> list[Credentials]:
    """All that are there, the one that the CLI uses first."""
    return [found for found, _ in _search()]


def find_username() -> str:
    """The name that stands beside a legacy key, where that is what is used; else empty."""
    found = find_credentials()
    if not found or found[0].method != "legacy key":
        return ""
    values = _read_json(config_folder() / "kaggle.json")
    return str(os.environ.get("KAGGLE_USERNAME") or values.get("username") or "")


def describe_credentials() -> str:
    """The source in use, for messages."""
    found = find_credentials()
    return f"{found[0].method} from {found[0].source}" if found else "none found"


def redact(text: str) -> str:
    """`text` with every known secret blanked out."""
    secrets = {secret for _, values in _search() for secret in values}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text


def _search() -> list[tuple[Credentials, set[str]]]:
    """Every place that holds something, in the CLI's order, with its secret values."""
    found = [*_tokens(), *_legacy_keys()]
    oauth = Path.home() / ".kaggle" / "credentials.json"
    values = _read_json(oauth)
    if values:
        secrets = {str(value) for name, value in values.items() if "token" in name}
        found.append((Credentials(str(oauth), "OAuth", oauth), secrets))
    return found


def _tokens() -> list[tuple[Credentials, set[str]]]:
    found = []
    notebook = {"KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DATA_PROXY_URL"} <= set(os.environ)
    if notebook and os.environ.get("KAGGLE_API_V1_TOKEN"):
        path = Path(os.environ["KAGGLE_API_V1_TOKEN"])
        found.append((Credentials("KAGGLE_API_V1_TOKEN", "access token", path), _read_token(path)))
    token = os.environ.get("KAGGLE_API_TOKEN")
    if token:
        path = Path(token)
        is_file = os.path.isfile(token)  # noqa: PTH113 - Path's raises, and names, a long token
        secrets = _read_token(path) if is_file else {token}
        named = path if is_file else None
        found.append((Credentials("KAGGLE_API_TOKEN", "access token", named), secrets))
    for name in ("access_token", "access_token.txt"):
        path = Path.home() / ".kaggle" / name
        found.append((Credentials(str(path), "access token", path), _read_token(path)))
    return [(credentials, secrets) for credentials, secrets in found if secrets]


def _legacy_keys() -> list[tuple[Credentials, set[str]]]:
    path = config_folder() / "kaggle.json"
    values = _read_json(path)
    user = os.environ.get("KAGGLE_USERNAME") or values.get("username")
    found = []
    for source, key, file in (
        ("KAGGLE_KEY", os.environ.get("KAGGLE_KEY"), None),
        (str(path), values.get("key"), path),
    ):
        if user and key:
            pair = base64.b64encode(f"{user}:{key}".encode()).decode()  # as it stands in a header
            found.append((Credentials(source, "legacy key", file), {str(key), pair}))
    return found


def _read_token(path: Path) -> set[str]:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return set()
    return {token} if token else set()


def _read_json(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
