"""Find the credentials that the kaggle CLI will use, in the CLI's order, and redact secrets.

Secrets are read only to find defects in them, and to redact them in everything that is printed or
written. They are never passed on: the CLI finds them by itself.
"""

import base64
import html
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST_SECRET = 6  # characters; redacting shorter secrets would blank ordinary words
PATHS = ("/", "~", "./", "../")  # prefixes of a file path that a user gave instead of a token
PART = 10  # length of the shortest part of a secret that is redacted
MAX_BYTES = 1 << 16  # maximum size of a file with credentials
# variables with credentials; make_environment strips white space around their values
VARIABLES = ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_V1_TOKEN")
TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+")  # characters that RFC 6750 allows in a header
DEFECTS = (  # patterns of invalid tokens, the most specific first
    (r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]", "it has more than one line"),
    (r"\s", "there is white space in it"),
    (r"[\x00-\x1f\x7f]", "there is a control character in it"),
    (r"[\"'`]", "there is a quotation mark in it"),
    (r"[{}]", "it looks like JSON, as kaggle.json has it"),
    (r"[^\x00-\x7f]", "there is a character in it that is not ASCII"),
    (r"", "there is a character in it that no token has"),
)
PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")  # a password in a URL, such as a proxy's


@dataclass(frozen=True)
class Credentials:
    """The source of credentials: a variable or a file that the CLI reads. It holds no secret."""

    source: str  # name of the variable or file
    method: str  # access token, legacy key or OAuth
    path: Path | None = None  # None if the source is a variable
    defect: str = ""  # why the credentials cannot be used; never quotes the secret

    @property
    def exposed(self) -> bool:
        """Whether other users of this machine can read the file."""
        if self.path is None or not self.path.exists():
            return False
        return bool(self.path.stat().st_mode & (stat.S_IRWXG | 0o007))


def config_folder() -> Path:
    """Return the folder of kaggle.json."""
    if os.environ.get("KAGGLE_CONFIG_DIR"):
        return Path(os.environ["KAGGLE_CONFIG_DIR"])
    home = Path.home() / ".kaggle"
    if home.is_dir():
        return home
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kaggle"


def find_credentials() -> list[Credentials]:
    """Return all credentials that exist; the CLI uses the first."""
    return [found for found, _ in _search()]


def find_username() -> str:
    """Return the user name of the legacy key; empty if other credentials are in use."""
    found = find_credentials()
    if not found or found[0].method != "legacy key":
        return ""
    values = _read_json(config_folder() / "kaggle.json")
    return _ask("KAGGLE_USERNAME") or str(values.get("username") or "")


def describe_credentials() -> str:
    """Return method and source of the credentials in use, such as "legacy key from KAGGLE_KEY"."""
    found = find_credentials()
    return f"{found[0].method} from {found[0].source}" if found else "none found"


def redact(text: str) -> str:
    """Redact every known secret in a text: whole secrets and single lines of them, plain, escaped
    or encoded. Parts of at least PART characters, which cut or wrapped lines may contain, and
    passwords in URLs are redacted as well."""
    forms = {form for _, secrets in _search() for secret in secrets for form in _list_forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    secrets = [form for form in forms if not form.startswith(PATHS)]
    return PASSWORD.sub(rf"\1{HIDDEN}@", _hide_parts(text, secrets))


def _hide_parts(text: str, forms: Iterable[str]) -> str:
    """Redact every stretch of PART or more characters that the text shares with one of `forms`. The
    forms are the texts in which secrets may be printed: see _list_forms."""
    parts = {form[begin : begin + PART] for form in forms for begin in range(len(form) - PART + 1)}
    kept, end = [], 0
    for begin in range(len(text) - PART + 1) if parts else ():
        if text[begin : begin + PART] in parts:
            if begin > end or not end:
                kept += [text[end:begin], HIDDEN]
            end = begin + PART
    return "".join([*kept, text[end:]])


def _list_forms(secret: str) -> Iterator[str]:
    """Yield the texts in which a secret, or a line of it, may be printed: escaped or encoded."""
    pieces = re.split(r"[\x00-\x1f\x7f]+", secret)
    for part in {secret, *secret.splitlines(), *pieces}:
        if len(part.strip()) < SHORTEST_SECRET:
            continue
        raw = part.encode("utf-8", "surrogateescape")
        encoded = {quote(part, safe="", errors="replace"), quote(part, errors="replace")}
        encoded.add(quote_plus(part, errors="replace"))
        encoded.add(quote(quote(part, safe="", errors="replace"), safe=""))
        yield part.encode("unicode_escape", "replace").decode()
        yield from (part, part.strip(), repr(part)[1:-1], repr(raw)[2:-1], html.escape(part))
        yield from (json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        yield from encoded
        yield from (re.sub(r"%..", lambda found: found[0].lower(), form) for form in encoded)
        yield from (raw.hex(), raw.hex().upper(), *_list_base64(raw))


def _list_base64(raw: bytes) -> Iterator[str]:
    """Yield the base64 text of the bytes: alone, and as it looks inside longer encoded data. Three
    encoded bytes give four letters, so there are three alignments inside longer data."""
    yield base64.b64encode(raw).decode()
    yield base64.urlsafe_b64encode(raw).decode()
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw).decode()[first:end]


def _search() -> list[tuple[Credentials, set[str]]]:
    """Return all credentials that exist, in the CLI's order, each with its secret values."""
    found = [*_tokens(), *_legacy_keys()]
    oauth = Path.home() / ".kaggle" / "credentials.json"
    values = _read_json(oauth)
    if values:
        secrets = {str(value) for name, value in values.items() if "token" in name and value}
        defect = next(filter(None, map(_find_defect, sorted(secrets))), "")
        found.append((Credentials(str(oauth), "OAuth", oauth, defect), secrets))
    path = config_folder() / "kaggle.json"
    if not found and path.exists():
        defect = 'expected JSON such as {"username": "NAME", "key": "KEY"}'
        content, _ = _read_text(path)
        found.append((Credentials(str(path), "legacy key", path, defect), {content} - {""}))
    return found


def _tokens() -> list[tuple[Credentials, set[str]]]:
    found = []
    notebook = {"KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DATA_PROXY_URL"} <= set(os.environ)
    if notebook and _ask("KAGGLE_API_V1_TOKEN"):
        found.append(_read_token("KAGGLE_API_V1_TOKEN", Path(_ask("KAGGLE_API_V1_TOKEN"))))
    token = _ask("KAGGLE_API_TOKEN")
    if token and os.path.exists(token):  # noqa: PTH110 - Path's error would quote a long token
        found.append(_read_token("KAGGLE_API_TOKEN", Path(token)))
    elif token:
        defect = _find_defect(token)
        if token.startswith(PATHS):
            defect = "it looks like the path of a file, and no file is there"
        credentials = Credentials("KAGGLE_API_TOKEN", "access token", None, defect)
        found.append((credentials, {token, os.environ["KAGGLE_API_TOKEN"]}))
    for name in ("access_token", "access_token.txt"):
        path = Path.home() / ".kaggle" / name
        found.append(_read_token(str(path), path))
    return [(one, secrets) for one, secrets in found if secrets or one.defect]


def _legacy_keys() -> list[tuple[Credentials, set[str]]]:
    path = config_folder() / "kaggle.json"
    values = _read_json(path)
    user = _ask("KAGGLE_USERNAME") or str(values.get("username") or "")
    found = []
    for source, given, file in (
        ("KAGGLE_KEY", _ask("KAGGLE_KEY"), None),
        (str(path), str(values.get("key") or ""), path),
    ):
        if user and given:
            pair = base64.b64encode(f"{user}:{given}".encode(errors="replace")).decode()
            defect = _find_defect(given)
            if not defect and _find_defect(user):
                defect = f"the user's name is not valid: {_find_defect(user)}"
            found.append((Credentials(source, "legacy key", file, defect), {given, pair}))
    return found


def _ask(variable: str) -> str:
    """Return the value of an environment variable without surrounding white space."""
    return os.environ.get(variable, "").strip()


def _find_defect(token: str) -> str:
    """Return why a token is not valid in an HTTP header; empty if it is valid."""
    if TOKEN.fullmatch(token):
        return ""
    return next(words for pattern, words in DEFECTS if re.search(pattern, token))


def _read_token(source: str, path: Path) -> tuple[Credentials, set[str]]:
    """Return the credentials in a token file, and the set of secrets that the file contains. The
    set is empty if the file is missing or empty."""
    content, defect = _read_text(path)
    token = content.strip()
    defect = defect or (_find_defect(token) if token else "")
    return Credentials(source, "access token", path, defect), {token} - {""}


def _read_text(path: Path) -> tuple[str, str]:
    """Return a file's text (empty if missing), and why the CLI cannot read it (empty if it can)."""
    try:
        if path.exists() and not path.is_file():
            return "", "expected a file, found a folder or something else"
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError) as error:
        return "", f"the file cannot be read ({getattr(error, 'strerror', None) or 'its name'})"
    if len(content) > MAX_BYTES:
        return "", f"the file is larger than {MAX_BYTES:,} bytes"
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError:
        wide = content.decode("utf-16", errors="replace")  # some editors and shells write UTF-16
        return f"{wide}\n{content.decode('latin-1')}", "the file is not UTF-8 text"


def _read_json(path: Path) -> dict[str, object]:
    try:
        values = json.loads(_read_text(path)[0] or "{}")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
