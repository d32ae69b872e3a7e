"""What the stand-in for Kaggle knows, and how it answers each call of the API."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

INTROSPECT, LIST, LIMITS = "IntrospectToken", "ListSubmissions", "GetSubmissionLimits"
START, PUT, CREATE = "StartSubmissionUpload", "PUT", "CreateSubmission"
BOARD, DOWNLOAD, GET = "GetLeaderboard", "DownloadDataFiles", "GET"
CREATE_DATASET = "CreateDataset"
SAVE, SOURCE, OUTPUT = "SaveKernel", "GetKernel", "ListKernelSessionOutput"
UPLOADS = "http://localhost/upload/"
OUTPUTS = "http://localhost/files/"
MISSING = {"httpStatus": 403, "code": 403, "message": "Permission 'get' was denied"}
FOREVER = 10**9


@dataclass
class Fault:
    """What goes wrong with a call: from its `first` occurrence on, `times` times."""

    call: str
    kind: str  # a status such as "403", dropped, lost, hangs, html, wrong
    times: int = FOREVER
    first: int = 1
    counted: bool = False  # the server acts on the call before it fails
    message: str = ""  # beside the status


@dataclass
class Kernel:
    """A kernel: the bodies with which it was saved, and what its latest session shows."""

    saved: list[dict[str, Any]] = field(default_factory=list)
    # Shown one after the other; the last one stays.
    states: list[str] = field(default_factory=lambda: ["COMPLETE"])
    failure: str = ""
    outputs: dict[str, bytes] = field(default_factory=dict)
    log: str = ""

    @property
    def notebook(self) -> dict[str, Any]:
        """What was pushed last."""
        found: dict[str, Any] = json.loads(self.saved[-1]["text"])
        return found


@dataclass
class World:
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
    board: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    archive: bytes = b""
    dropped_at: int | None = None  # the byte at which the first download breaks off
    # Datasets and kernels of one user:
    uploads: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)  # file names by token
    datasets: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)  # versions
    processing: int = 0  # looks for which a new version is not ready
    dataset_state: str = "READY"  # in the end
    dataset_refusal: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    push_refusal: str = ""
    invalid_datasets: list[str] = field(default_factory=list)

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
            "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
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

    def on_StartBlobUpload(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        token = f"blob{len(self.blobs)}"
        self.blobs[token] = body["name"]
        return {"token": token, "createUrl": UPLOADS + token}

    def on_GetDatasetStatus(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if f"{body['ownerSlug']}/{body['datasetSlug']}" not in self.datasets:
            return MISSING
        if self.processing:
            self.processing -= 1
            return {"status": "INDIVIDUAL_BLOBS_COMPRESSED"}
        return {"status": self.dataset_state}

    def on_GetDataset(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = f"{body['ownerSlug']}/{body['datasetSlug']}"
        return {"ref": name, "currentVersionNumber": len(self.datasets[name])}

    def on_CreateDataset(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return self._add_version(f"{body['ownerSlug']}/{body['slug']}", body["files"])

    def on_CreateDatasetVersion(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = f"{body['ownerSlug']}/{body['datasetSlug']}"
        return self._add_version(name, body["body"]["files"])

    def _add_version(self, name: str, files: list[dict[str, str]]) -> dict[str, Any]:
        if self.dataset_refusal:
            return {"status": "error", "error": self.dataset_refusal}
        tokens = [file["token"] for file in files if file["token"] in self.uploads]
        version = {self.blobs[token]: self.uploads[token] for token in tokens}
        self.datasets.setdefault(name, []).append(version)
        return {"status": "ok", "url": f"https://www.kaggle.com/datasets/{name}"}

    def on_SaveKernel(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if self.push_refusal:
            return {"error": self.push_refusal}
        kernel = self.kernels.setdefault(body["slug"], Kernel())
        kernel.saved.append(body)
        url = f"https://www.kaggle.com/code/{body['slug']}"
        reply = {"ref": body["slug"], "url": url, "versionNumber": len(kernel.saved)}
        return {**reply, "invalidDatasetSources": self.invalid_datasets}

    def on_GetKernel(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = f"{body['userName']}/{body['kernelSlug']}"
        if name not in self.kernels:
            return MISSING
        source = self.kernels[name].saved[-1]["text"]
        kinds = {"language": "python", "kernelType": "notebook"}
        return {"blob": {"source": source, "slug": body["kernelSlug"], **kinds}}

    def on_GetKernelSessionStatus(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        kernel = self.kernels.get(f"{body['userName']}/{body['kernelSlug']}")
        if kernel is None:
            return MISSING
        state = kernel.states[0] if len(kernel.states) == 1 else kernel.states.pop(0)
        return {"status": state, **({"failureMessage": kernel.failure} if kernel.failure else {})}

    def on_ListKernelSessionOutput(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = f"{body['userName']}/{body['kernelSlug']}"
        kernel = self.kernels[name]
        names = sorted(kernel.outputs)
        start = int(body.get("pageToken") or 0)
        stop = start + body.get("pageSize", 20)
        files = [{"fileName": n, "url": f"{OUTPUTS}{name}/{n}"} for n in names[start:stop]]
        following = {"nextPageToken": str(stop)} if stop < len(names) else {}
        return {"files": files, "log": kernel.log, **following}

    def find_output(self, path: str) -> bytes:
        """The output at USER/SLUG/PATH."""
        user, slug, name = path.split("/", 2)
        return self.kernels[f"{user}/{slug}"].outputs[name]
