"""How long to wait and how often to try: every limit in one place, each settable.

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
    """Limits of the talk with Kaggle; times in seconds."""

    model_config = ConfigDict(frozen=True)

    competition: str = "predict-ai-model-runtime"
    submissions: Path = Path(__file__).parent  # where ledger.csv and sent/ lie
    call_seconds: Seconds = 120.0  # one question; the kaggle CLI itself would wait for ever
    upload_seconds: Seconds = 600.0  # it tries a broken upload again for 367 seconds by itself
    download_seconds: Seconds = 6 * 3600.0
    tries: int = Field(3, ge=1, le=20)  # of a call that failed for a passing reason
    wait_seconds: Seconds = 5.0  # before the second try; doubles with each one
    quiet_seconds: Seconds = 60.0  # how late a submission whose call failed may still appear
    # How long what Kaggle said it took may stay out of its list before it is sent again; so long
    # the list also has where nobody says how many submissions there are.
    accepted_seconds: Seconds = 3600.0
    score_seconds: Seconds = 900.0  # how long to wait for a score
    poll_seconds: Seconds = 5.0  # between two looks for it; grows by half, up to a minute
    ready_seconds: Seconds = 1800.0  # how long an uploaded dataset may be processed
    wheels: Path = Path("build/kernel-wheels")  # the dataset folder that is uploaded
    kernel_python: str = Field("3.12", pattern=r"^3\.\d+$")  # of Kaggle's image
    lock_seconds: Seconds = 120.0  # how long to wait for another submit to end

    @property
    def ledger(self) -> Path:
        """Where every submission has its line; the file may not be there yet."""
        return self.submissions / "ledger.csv"


def read_settings() -> Settings:
    """The settings, with what the environment says; InputError where it makes no sense."""
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
