"""Limits of waiting and retrying; each can be set.

A field such as call_seconds is set by the environment variable FASTSLOW_CALL_SECONDS.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solution.system.errors import InputError

PREFIX = "FASTSLOW_"
Seconds = Annotated[float, Field(ge=0, le=7 * 24 * 3600)]


class Settings(BaseModel):
    """Limits of the communication with Kaggle; times in seconds."""

    model_config = ConfigDict(frozen=True)

    competition: str = "predict-ai-model-runtime"
    submissions: Path = Path(__file__).parent  # folder of ledger.csv and sent/
    call_seconds: Seconds = 120.0  # of one query; the kaggle CLI itself has no limit
    upload_seconds: Seconds = 600.0  # the CLI itself retries an interrupted upload for 367 seconds
    download_seconds: Seconds = 6 * 3600.0
    tries: int = Field(3, ge=1, le=20)  # of a call with a temporary failure
    wait_seconds: Seconds = 5.0  # before the second try; doubles with each one
    quiet_seconds: Seconds = 60.0  # how late a submission may still appear after its call failed
    # How long a submission that Kaggle said it accepted may be missing from the list before it may
    # be sent again; the same limit holds for any submission if Kaggle does not tell their number.
    accepted_seconds: Seconds = 3600.0
    score_seconds: Seconds = 900.0  # how long to wait for a score
    poll_seconds: Seconds = 5.0  # between two looks; grows by half, up to a minute
    ready_seconds: Seconds = 1800.0  # maximum processing time of an uploaded dataset
    wheels: Path = Path("build/kernel-wheels")  # the dataset folder that is uploaded
    kernel_python: str = Field("3.12", pattern=r"^3\.\d+$")  # of Kaggle's image
    lock_seconds: Seconds = 120.0  # how long to wait for another submit

    @property
    def ledger(self) -> Path:
        """Path of the ledger; the file may not exist yet."""
        return self.submissions / "ledger.csv"


def read_settings() -> Settings:
    """Return the settings with the environment's values; raise InputError if one is not valid."""
    given = {
        name: os.environ[PREFIX + name.upper()]
        for name in Settings.model_fields
        if os.environ.get(PREFIX + name.upper())
    }
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        found = "; ".join(
            f"{PREFIX}{str(defect['loc'][0]).upper()}={given[str(defect['loc'][0])]}: "
            f"{defect['msg']}"
            for defect in error.errors()
        )
        raise InputError(f"{found}. Correct or unset the variable.") from error
