"""What the stand-in for Kaggle knows, and how it answers each call of the API."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kaggle.kernel_world import KernelWorld

INTROSPECT, LIST, LIMITS = "IntrospectToken", "ListSubmissions", "GetSubmissionLimits"
START, PUT, CREATE = "StartSubmissionUpload", "PUT", "CreateSubmission"
BOARD, FILES = "GetLeaderboard", "ListDataFiles"
DOWNLOAD, DOWNLOAD_ONE, GET = "DownloadDataFiles", "DownloadDataFile", "GET"
UPLOADS = "http://localhost/upload/"
FOREVER = 10**9


@dataclass
class Fault:
    """What goes wrong with a call: from its `first` occurrence on, `times` times."""

    call: str
    kind: str  # a status such as "403", dropped, lost, garbled, hangs, html, bomb, wrong
    times: int = FOREVER
    first: int = 1
    counted: bool = False  # the server acts on the call before it fails
    message: str = ""  # beside the status


@dataclass
class World(KernelWorld):
    """What the stand-in knows."""

    submissions: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    schemes: set[str] = field(default_factory=set)  # of the Authorization headers
    faults: list[Fault] = field(default_factory=list)
    deaf_after: int | None = None  # the call after which connections are refused
    allowed: int = 5
    page_size: int = 200  # the largest page that is given
    late: float = 0.0  # seconds after which a submission is listed and counted
    pending: int = 0  # looks for which a submission has no score
    status: str = "COMPLETE"
    refusal: str = ""  # the message with which a submission is refused
    scores: tuple[str, str] = ("0.654", "0.632")
    clock: timedelta = timedelta(0)  # how far it is ahead
    board: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    archive: bytes = b""
    dropped_at: int | None = None  # the byte at which the first download breaks off

    def count(self, call: str) -> int:
        """How often something was asked."""
        return Counter(name for name, _ in self.calls)[call]

    def _listed(self) -> list[dict[str, Any]]:
        return [row for row in self.submissions if row.get("listed", 0.0) <= time.monotonic()]

    def on_IntrospectToken(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"active": True, "username": "tester"}

    def on_ListSubmissions(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        size = min(body.get("pageSize", 20), self.page_size)
        start = (body.get("page", 1) - 1) * size
        newest_first = self._listed()[::-1][start : start + size]
        shown = [{name: row[name] for name in row if name != "listed"} for row in newest_first]
        for row in newest_first:
            row["looks"] = row.get("looks", 0) + 1
        for row in shown:
            if row.pop("looks", 0) < row.pop("pending", 0):
                row |= {"status": "PENDING", "publicScore": "", "privateScore": ""}
        return {"submissions": shown}

    def on_GetSubmissionLimits(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        made = len(self._listed())
        counts = {"numToday": made, "numTotal": made, "numAllowedNow": max(0, self.allowed - made)}
        return {name: value for name, value in counts.items() if value}

    def on_StartSubmissionUpload(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        token = f"token{self.count(START)}"
        return {"token": token, "createUrl": UPLOADS + token}

    def on_CreateSubmission(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if body["blobFileTokens"] not in self.uploads:
            return {"code": 400, "message": "The uploaded file is missing"}
        if self.refusal:
            return {"code": 403, "message": self.refusal}
        public, private = self.scores if self.status == "COMPLETE" else ("", "")
        row = {
            "ref": 41_000_000 + len(self.submissions),
            "date": (datetime.now(UTC) + self.clock).isoformat().replace("+00:00", "Z"),
            "description": body["submissionDescription"],
            "fileName": "submission.csv",
            "status": self.status,
            "publicScore": public,
            "privateScore": private,
            "pending": self.pending,
            "listed": time.monotonic() + self.late,
            "token": body["blobFileTokens"],
        }
        self.submissions.append(row)
        return {"message": "Successfully submitted to Fast or Slow", "ref": row["ref"]}

    def on_GetLeaderboard(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        start = int(body.get("pageToken") or 0)
        stop = start + min(body.get("pageSize", 20), self.page_size)
        following = str(stop) if stop < len(self.board) else ""
        return {"submissions": self.board[start:stop], "nextPageToken": following}

    def on_ListDataFiles(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        names = sorted(self.files)
        start = int(body.get("pageToken") or 0)
        stop = start + min(body.get("pageSize", 20), self.page_size)
        files = [{"name": name, "totalBytes": len(self.files[name])} for name in names[start:stop]]
        return {"files": files, "nextPageToken": str(stop) if stop < len(names) else ""}

    def on_DownloadDataFiles(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"redirect": "http://localhost/files/archive.zip?signed=1"}

    def on_DownloadDataFile(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"redirect": f"http://localhost/files/{body['fileName']}?signed=1"}
