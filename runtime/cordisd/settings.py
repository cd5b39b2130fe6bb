"""Base of every entry's configuration, and the unit types that configurations share.

Published keys are camelCase (`timeoutMs`); Python names are snake_case. Every field is described by the
string below it. pydantic is not asked to read those strings: it would parse the sources at every start.
"""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo
from pydantic.alias_generators import to_camel

PositiveInt = Annotated[int, Field(ge=1, le=2**53 - 1)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53 - 1)]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

EnvironmentVariables = dict[
    Annotated[str, StringConstraints(pattern=r"^[^=\x00]+$")],
    Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")],
]


def _from_its_file(path: str, info: ValidationInfo) -> str:
    return os.path.abspath(os.path.join((info.context or {}).get("folder", ""), path))


FolderPath = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$"), AfterValidator(_from_its_file)]
"""A path as it is written, relative to the folder of that file; absolute once it is read.

`~` is a name like any other. A default is taken as it is; without a file (`Entry.read_config` without a
folder) the path is relative to the working directory.
"""


class EntryConfig(BaseModel):
    """Frozen, strict configuration of one entry; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
    )
