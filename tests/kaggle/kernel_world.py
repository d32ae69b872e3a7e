"""What the stand-in for Kaggle knows of datasets and kernels, and how it answers their calls."""

import json
from dataclasses import dataclass, field
from typing import Any

BLOB, CREATE_DATASET, VERSION = "StartBlobUpload", "CreateDataset", "CreateDatasetVersion"
DATASET_STATUS, SAVE, SOURCE = "GetDatasetStatus", "SaveKernel", "GetKernel"
SESSION, OUTPUT = "GetKernelSessionStatus", "ListKernelSessionOutput"
BLOBS = "http://localhost/upload/"
FILES = "http://localhost/files/"
MISSING = {"httpStatus": 403, "code": 403, "message": "Permission 'get' was denied"}


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
class KernelWorld:
    """Datasets and kernels of one user."""

    uploads: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)  # file names by token
    datasets: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)  # versions
    processing: int = 0  # looks for which a new version is not ready
    dataset_state: str = "READY"  # in the end
    dataset_refusal: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    push_refusal: str = ""
    invalid_datasets: list[str] = field(default_factory=list)

    def on_StartBlobUpload(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        token = f"blob{len(self.blobs)}"
        self.blobs[token] = body["name"]
        return {"token": token, "createUrl": BLOBS + token}

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
        files = [{"fileName": n, "url": f"{FILES}{name}/{n}"} for n in names[start:stop]]
        following = {"nextPageToken": str(stop)} if stop < len(names) else {}
        return {"files": files, "log": kernel.log, **following}

    def find_output(self, path: str) -> bytes:
        """The output at USER/SLUG/PATH."""
        user, slug, name = path.split("/", 2)
        return self.kernels[f"{user}/{slug}"].outputs[name]
