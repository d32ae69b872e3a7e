"""`fastslow doctor`, and the ways to the right credentials."""

import base64
import json
import os
import re
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote_plus

import pytest

from submissions.credentials import find_credentials, redact
from submissions.failures import tell_failure
from tests.kaggle.desk import SECRET, UNSET, Desk, check
from tests.kaggle.world import LIMITS, Fault


def test_a_healthy_place(desk: Desk) -> None:
    words = ("KAGGLE_KEY", "5 left", "0 made", "GB free", "torch 2", "GPU")
    done = check(desk.call("doctor"), 0, *words)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_problem_is_told_with_what_to_do(desk: Desk) -> None:
    desk.world.allowed = 0
    home = desk.folder / "home" / ".kaggle"
    home.mkdir(parents=True)
    (home / "access_token").write_text("0123456789")
    (home / "access_token").chmod(0o644)
    desk.write_ledger("key,state\nopen-one,sending\n")
    desk.more["VERBOSE"] = "1"
    done = check(desk.call("doctor"), 2)
    said = "".join(done.stdout.split())
    for words in (
        "0 left now, 0 made today",
        "Wait for the next day (UTC)",
        "Others can read it: chmod 600",
        "It hides: legacy key in KAGGLE_KEY",
        "Unknown whether open-one arrived",
    ):
        assert "".join(words.split()) in said, words
    assert "0123456789" not in done.stdout


def test_a_token_that_is_too_long_for_a_file_name_stays_hidden(desk: Desk) -> None:
    token = f"eyJ{'0123456789' * 40}"
    key = {"KAGGLE_USERNAME": UNSET, "KAGGLE_KEY": UNSET}
    desk.more |= {**key, "KAGGLE_API_TOKEN": token}
    for done in (desk.call("doctor"), desk.call("scores")):
        assert "0123456789" not in done.words
        assert "KAGGLE_API_TOKEN" in done.words or "***" in done.words


@pytest.mark.parametrize(
    ("kind", "words"), [("401", "did not accept the credentials"), ("html", "a web page")]
)
def test_kaggle_does_not_answer_as_it_should(desk: Desk, kind: str, words: str) -> None:
    desk.world.faults = [Fault(LIMITS, kind)]
    done = check(desk.call("doctor"), 2)
    assert "".join(words.split()) in "".join(done.stdout.split())


def test_nothing_is_there(desk: Desk) -> None:
    desk.server.refuse()
    desk.more = {"KAGGLE_USERNAME": UNSET, "KAGGLE_KEY": UNSET, "FASTSLOW_KAGGLE": "/no/kaggle"}
    done = check(desk.call("doctor"), 2, "none", "Make a token")
    assert "`fastslow doctor`" not in done.words  # that is what was typed
    assert "Traceback" not in done.words
    desk.more = {"KAGGLE_USERNAME": UNSET, "KAGGLE_KEY": UNSET}
    scores = check(desk.call("scores"), 2, "could not")
    assert "No submission yet" not in scores.words
    assert "Where it would stand" not in scores.words  # nothing of ours would stand there


SOURCES = ("KAGGLE_API_TOKEN", "access_token", "access_token.txt", "KAGGLE_KEY", "kaggle.json")


def test_sources_are_in_the_clis_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("KAGGLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert find_credentials() == []
    folder = tmp_path / ".kaggle"
    folder.mkdir()
    (folder / "credentials.json").write_text(json.dumps({"refresh_token": "refresh-0"}))
    (folder / "kaggle.json").write_text(json.dumps({"username": "me", "key": "key-in-file"}))
    monkeypatch.setenv("KAGGLE_USERNAME", "me")
    monkeypatch.setenv("KAGGLE_KEY", "key-in-variable")
    (folder / "access_token.txt").write_text("token-in-text\n")
    (folder / "access_token").write_text("token-in-file\n")
    monkeypatch.setenv("KAGGLE_API_TOKEN", "token-in-variable")
    found = [Path(one.source).name for one in find_credentials()]
    assert found == [*SOURCES, "credentials.json"]
    said = "refresh-0 key-in-file key-in-variable token-in-text token-in-file token-in-variable"
    assert redact(f"{said} and words") == "*** *** *** *** *** *** and words"
    (tmp_path / "elsewhere").write_text("token-elsewhere")
    monkeypatch.setenv("KAGGLE_API_TOKEN", str(tmp_path / "elsewhere"))
    assert redact("token-elsewhere") == "***"


def use_token(folder: Path, token: str | bytes, *, in_file: bool) -> dict[str, str]:
    """The variables that make it the one in use; or it is written into its file below the home."""
    if not in_file:
        return {"KAGGLE_API_TOKEN": str(token)}
    home = folder / ".kaggle"
    home.mkdir(parents=True)
    (home / "access_token").write_bytes(token.encode() if isinstance(token, str) else token)
    return {}


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "variable"])
@pytest.mark.parametrize(("token", "words"), [
    (f"{SECRET}\nsecond-line-of-it", "more than one line"),
    (f"{SECRET}\r\n\r\n{SECRET}", "more than one line"), (f"first {SECRET}", "white space"),
    (f"{SECRET}\x1b", "control character"), (f'"{SECRET}"', "quotation mark"),
    (f"{SECRET}\u20ac", "not ASCII"),
])  # fmt: skip
def test_why_no_header_can_hold_a_token_is_told(
    token: str, words: str, in_file: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KAGGLE_API_TOKEN", raising=False)
    for name, value in use_token(tmp_path, token, in_file=in_file).items():
        monkeypatch.setenv(name, value)
    first = find_credentials()[0]
    assert Path(first.source).name == ("access_token" if in_file else "KAGGLE_API_TOKEN")
    assert words in first.defect
    assert SECRET not in redact(f"{first} {token}")


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "variable"])
def test_a_token_that_is_no_header_is_neither_sent_nor_shown(desk: Desk, in_file: bool) -> None:
    token = f"{SECRET}\nsecond-line-of-it"
    desk.more |= use_token(desk.folder / "home", token, in_file=in_file)
    done = [desk.submit(), desk.call("scores")]
    assert desk.world.calls == []
    done.append(desk.call("doctor"))
    for one in done:
        check(one, 2)
        assert SECRET not in one.words
        assert "second-line" not in one.words
        assert "Traceback" not in one.words
    words = "more than one line"
    check(done[0], 2, words, "access_token" if in_file else "KAGGLE_API_TOKEN")
    assert "stop Credentials" in done[2].words
    assert set(words.split()) <= set(done[2].words.split())


@pytest.mark.parametrize(
    ("content", "words"),
    [(SECRET.encode("utf-16"), "not UTF-8"), (b"x" * 10**6, "larger than")],
    ids=["utf-16", "large"],
)
def test_a_token_file_that_cannot_be_read_is_named(desk: Desk, content: bytes, words: str) -> None:
    use_token(desk.folder / "home", content, in_file=True)
    done = check(desk.call("scores"), 2, "home/.kaggle/access_token", words)
    assert SECRET not in done.words


FORMS = {
    "whole": lambda secret: secret,
    "a line": lambda secret: secret.splitlines()[-1],
    "repr": repr,
    "bytes": lambda secret: repr(f"Bearer {secret}".encode()),
    "JSON": lambda secret: json.dumps({"token": secret}),
    "percent": lambda secret: f"https://host/?t={quote(secret, safe='')}&x",
    "plus": lambda secret: f"t={quote_plus(secret)}",
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "hex": lambda secret: secret.encode().hex(),
    **{
        f"base64 after {text}": lambda secret, text=text: base64.urlsafe_b64encode(
            f"{text}{secret}{text}".encode()
        ).decode()
        for text in ("u", "us", "use", "user:")
    },
    "twice in a URL": lambda secret: f"a?key={quote(quote(secret, safe=''), safe='')}",
    "escaped": lambda secret: secret.encode("unicode_escape").decode(),
    "cut": lambda secret: f"Bearer {secret[:12]}...",
    "wrapped": lambda secret: f"Bearer {secret[:11]}\n{secret[11:]}",
}


def _can_be_read(shown: str, secret: str) -> bool:
    """Whether four letters of one of its lines can be read in a text, decoded in some way."""
    read = {shown, unquote_plus(shown), shown.encode("latin-1").decode("unicode_escape")}
    for word in re.findall(r"[\w+/-]{8,}", shown, re.ASCII):
        for start in range(4):
            part = word[start : start + (len(word) - start) // 4 * 4]
            standard = part.replace("-", "+").replace("_", "/")
            read.add(base64.b64decode(standard).decode(errors="replace"))
        if re.fullmatch(r"[0-9a-f]+", word):
            read.add(bytes.fromhex(word[: len(word) // 2 * 2]).decode(errors="replace"))
    pieces = [line[at : at + 4] for line in secret.splitlines() for at in range(len(line) - 3)]
    return any(piece in text for piece in pieces for text in read)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize(
    "secret", ["KGAT_0123456789/+=abc", "7irst~line:of\n5econd\tl\u00efne"], ids=["one", "two"]
)
def test_a_secret_is_hidden_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str, secret: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KAGGLE_API_TOKEN", secret)
    printed = FORMS[form](secret)
    assert _can_be_read(printed, secret)
    assert not _can_be_read(redact(printed), secret), redact(printed)


def test_the_password_of_a_proxy_is_hidden() -> None:
    assert redact("at http://me:pass-word@proxy:80/x") == "at http://me:***@proxy:80/x"
    assert redact("at http://proxy:80/me@x") == "at http://proxy:80/me@x"


@pytest.mark.parametrize(("printed", "name"), [
    ("Authentication required to call the Kaggle API.", "401"),
    ("You cannot submit until you accept the competition rules", "rules"),
    ("Permission 'competitions.participate' was denied", "403"),
    ("404 Client Error: Not Found for url: http://x", "404"),
    ("429 Client Error: Too Many Requests", "429"),
    ("Your team has used its daily submission limit of 5", "limit"),
    ("The competition is closed", "closed"),
    ("Submissions are not accepted after the deadline", "closed"),
    ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "clock"),
    ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "TLS"),
    ("NameResolutionError: Failed to resolve 'api.kaggle.com'", "network down"),
    ("Unable to connect to proxy, Tunnel connection failed: 403 Forbidden", "network down"),
    ("('Connection aborted.', RemoteDisconnected('Remote end closed'))", "interrupted"),
    ("Expecting value: line 1 column 1 (char 0)", "no JSON"),
    ("503 Server Error: Service Unavailable for url", "500"), ("Deadline exceeded", "500"),
    ("API rate limit exceeded for submission requests", "429"),
    ("[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed", "interrupted"),
    ("NewConnectionError: Failed to establish a new connection: [Errno 111]", "network down"),
    ("A temporary failure occurred, the host is unreachable", "unknown"),
    ("Could not submit to competition", "upload failed"),
    ("Something that nobody has seen before", "unknown"),
])  # fmt: skip
def test_what_the_cli_prints_has_a_name(printed: str, name: str) -> None:
    assert tell_failure(printed).name == name
