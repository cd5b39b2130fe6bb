"""Base of every entry's configuration, and the unit types that configurations share.

Published keys are camelCase (`timeoutMs`); Python names are snake_case. Every field is described by the
string below it. pydantic is not asked to read those strings: it would parse the sources at every start.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

PositiveInt = Annotated[int, Field(ge=1, le=2**53 - 1)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53 - 1)]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

EnvironmentVariables = dict[
    Annotated[str, StringConstraints(pattern=r"^[^=\x00]+$")],
    Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")],
]

FolderPath = Annotated[str, Field(min_length=1)]


class EntryConfig(BaseModel):
    """Frozen, strict configuration of one entry; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
    )
