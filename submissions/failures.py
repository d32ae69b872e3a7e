"""Classify failures of the kaggle CLI by the text that it prints.

The CLI prints a server's message without its status, and exits with 0 after some failures. The
printed text may mislead, so a submission never relies on it: see submissions/sending.py.
"""

import re
from dataclasses import dataclass, replace

from solution.system.errors import InputError
from solution.system.wording import shorten

MAX_QUOTED = 200  # maximum number of characters of the CLI's output in a message

# Exit codes. DONE: Kaggle has the submission. NOT_KNOWN: perhaps Kaggle has it. NOT_SCORED: Kaggle
# has it but could not score it. (An InputError exits with 2.)
DONE, NOT_KNOWN, NOT_SCORED = 0, 3, 4


@dataclass(frozen=True)
class Outcome:
    """The result of a command: its exit code, and a message for the user."""

    code: int
    message: str


@dataclass(frozen=True)
class FailureKind:
    """A kind of failure of a call to Kaggle, with words and advice for the user."""

    name: str
    words: str
    advice: str
    passing: bool = False  # True for a temporary failure: a later try may work
    pattern: str = ""  # regular expression, searched in the CLI's output; empty: output not used


TIMED_OUT = FailureKind(
    "timed out",
    "Kaggle did not answer within {seconds:g} seconds",
    "Run the same command again; FASTSLOW_CALL_SECONDS and FASTSLOW_UPLOAD_SECONDS allow more.",
    passing=True,
)
NO_CREDENTIALS = FailureKind(
    "no credentials",
    "there are no credentials for Kaggle",
    "Make a token at https://www.kaggle.com/settings/api and save it as ~/.kaggle/access_token, "
    "or run `kaggle auth login`.",
)
BAD_CREDENTIALS = FailureKind(
    "bad credentials",
    "the {source} cannot be used",
    "Write it anew, on one line as Kaggle shows it: https://www.kaggle.com/settings/api.",
)
BAD_REPLY = FailureKind(
    "bad reply",
    "Kaggle's answer was not what was asked for",
    "Run the same command again in a few minutes.",
    passing=True,
)
UNKNOWN = FailureKind(
    "unknown",
    "the kaggle CLI failed",
    "Run `fastslow doctor`, then the same command again.",
)
NETWORK_DOWN = FailureKind(
    "network down",
    "Kaggle cannot be reached",
    "Check the network and the proxy variables (https_proxy), then try again.",
    passing=True,
    pattern=r"Failed to establish a new|Failed to resolve|Unable to connect to proxy"
    r"|connect timeout",
)
# names of the failure kinds which mean that Kaggle's server does not offer the query
NO_ENDPOINT = ("404", "405")
RULES = "https://www.kaggle.com/competitions/{competition}/rules"

# The kinds in order of precedence: the first whose pattern matches the CLI's output is taken.
KINDS = (
    # It stands before the kind 403, because the message may contain a proxy's status 403.
    replace(NETWORK_DOWN, pattern=r"Tunnel connection failed"),
    FailureKind(
        "401",
        "Kaggle did not accept the credentials ({source})",
        "Make a token at https://www.kaggle.com/settings/api; `fastslow doctor` says which "
        "credentials are used and which others hide behind them.",
        pattern=r"Authentication required|\b401\b|Unauthori[sz]ed|Unauthenticated"
        r"|Invalid credentials",
    ),
    FailureKind(
        "rules",
        "the rules are not accepted yet",
        f"Accept them at {RULES}, then try again.",
        pattern=r"accept.{0,40}\brules\b",
    ),
    FailureKind(
        "429",
        "Kaggle asks to slow down",
        "Wait some minutes, then try again.",
        passing=True,
        pattern=r"\b429\b|Too Many Requests|rate.?limit|Quota exceeded",
    ),
    FailureKind(
        "limit",
        "no submission is left today",
        "Wait for the next day, which Kaggle counts in UTC, then run the same command again.",
        pattern=r"(daily|submissions?)\b.{0,60}\b(limit|allowance|quota)"
        r"|\b(limit|allowance|quota)\b.{0,60}\bsubmission|maximum.{0,40}submiss",
    ),
    FailureKind(
        "closed",
        "the competition takes no submissions",
        "Nothing can be done from here: see the competition's page.",
        pattern=r"no longer accept|not accepting|(competition|it) (is|has) (closed|ended|over)"
        r"|after the deadline|deadline (has )?passed",
    ),
    FailureKind(
        "403",
        "Kaggle refuses ({competition})",
        f"Accept the rules at {RULES} (join the competition), and check its name.",
        pattern=r"Permission .{0,60}denied|\b403\b|Forbidden",
    ),
    FailureKind(
        "404",
        "Kaggle does not find it ({competition})",
        "Check the name of the competition: FASTSLOW_COMPETITION.",
        pattern=r"\b404\b|not found|Could not find competition",
    ),
    FailureKind(
        "405",
        "Kaggle does not know this call",
        "Update the CLI: pip install --upgrade kaggle.",
        pattern=r"\b405\b|Method Not Allowed|\b501\b|(is|are) not implemented|Unimplemented",
    ),
    FailureKind(
        "clock",
        "Kaggle's certificate is not valid at this time, so this machine's clock is wrong",
        "Set the clock (timedatectl set-ntp true), then try again.",
        pattern=r"certificate (has expired|is not yet valid)|clock skew",
    ),
    FailureKind(
        "TLS",
        "there is no trusted connection to Kaggle",
        "A proxy may be in between: name its certificate in REQUESTS_CA_BUNDLE.",
        pattern=r"CERTIFICATE_VERIFY_FAILED",
    ),
    FailureKind(
        "interrupted",
        "the connection broke before Kaggle's answer was here",
        "Run the same command again.",
        passing=True,
        pattern=r"Connection aborted|Connection reset|RemoteDisconnected|IncompleteRead|Broken pipe"
        r"|ended prematurely|Read timed out|Connection broken|SSLError|SSL:",
    ),
    NETWORK_DOWN,
    FailureKind(
        "no JSON",
        "Kaggle sent a web page instead of an answer, as it does during maintenance",
        "Run the same command again in some minutes; a login page of the network does the same.",
        passing=True,
        pattern=r"Expecting value: line|JSONDecodeError",
    ),
    FailureKind(
        "500",
        "Kaggle's server failed",
        "Run the same command again in some minutes.",
        passing=True,
        pattern=r"\b50\d\b|Internal (server )?error|Service Unavailable|Bad Gateway|Gateway Time"
        r"|Deadline.exceeded",
    ),
    FailureKind(
        "upload failed",
        "the file could not be uploaded",
        "Run the same command again.",
        passing=True,
        pattern=r"Could not submit to competition",
    ),
)


class KaggleError(InputError):
    """Raised if a call to Kaggle fails; `kind` says what failed."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def tell_failure(printed: str) -> FailureKind:
    """Return the first kind of failure that matches the CLI's output; UNKNOWN if none does."""
    flags = re.IGNORECASE | re.DOTALL
    return next((kind for kind in KINDS if re.search(kind.pattern, printed, flags)), UNKNOWN)


def explain_failure(
    kind: FailureKind, doing: str, printed: str = "", **facts: object
) -> KaggleError:
    """Return a KaggleError with a message for users.

    Args:
        doing: the purpose of the call, such as "asking for the submissions".
        printed: the CLI's output, without secrets; its last line is quoted.
        facts: values for the placeholders in the words and advice of `kind`: competition, source
            (of the credentials), seconds.
    """
    words = kind.words.format(**facts)
    advice = kind.advice.format(**facts)
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    quoted = f' The kaggle CLI said: "{shorten(lines[-1], MAX_QUOTED)}".' if lines else ""
    name = "" if kind.name in words else f" ({kind.name})"
    return KaggleError(kind, f"{doing}: {words}{name}.{quoted} {advice}")
