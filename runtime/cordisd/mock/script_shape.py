"""The keys of a script file's replies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cordisd.mock.parts import Cut, Hang, Part, Pause
from cordisd.mock.sse import DONE, event
from cordisd.settings import Seconds

Text = str | list[str]
"""One delta, or a delta for each piece."""
HeaderName = Annotated[str, Field(pattern=r"^[!-9;-~]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]
Headers = dict[HeaderName, HeaderValue]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CallShape(_Shape):
    """A tool call. Without `id` it is `call_1` and so on; `id: null` leaves it out."""

    name: str
    arguments: dict[str, Any] | Text = Field(default_factory=dict)
    id: str | None = None


class TokenShape(_Shape):
    """A sampled token."""

    text: str
    id: int
    logprob: float = 0.0


class ErrorShape(_Shape):
    """An HTTP error in the place of an answer: an error object, or a page of HTML."""

    status: int = Field(ge=400, le=599)
    message: str = ""
    type: str | None = None
    code: str | int | None = None
    html: str | None = None
    headers: Headers = {}


class PartShape(_Shape):
    """One part of a stream written by hand; exactly one key."""

    event: dict[str, Any] | None = None
    done: Literal[True] | None = None
    text: str | None = None
    hex: str | None = None
    pause: Seconds | None = None
    cut: Literal["fin", "rst"] | None = None
    hang: Literal[True] | None = None

    @model_validator(mode="after")
    def _has_one_key(self) -> PartShape:
        if len(self.model_fields_set) != 1:
            raise ValueError("a part has exactly one key")
        try:
            bytes.fromhex(self.hex or "")
        except ValueError as error:
            raise ValueError("hex is pairs of hexadecimal digits") from error
        return self

    def part(self) -> Part:
        """What is written."""
        if self.event is not None:
            return event(self.event)
        if self.text is not None:
            return self.text.encode("utf-8", "surrogatepass")
        if self.hex is not None:
            return bytes.fromhex(self.hex)
        if self.pause is not None:
            return Pause(self.pause)
        if self.cut is not None:
            return Cut(self.cut)
        return DONE if self.done else Hang()


class MatchShape(_Shape):
    """Regular expressions; see `playlist.Match`."""

    user: str | None = None
    tool: str | None = None
    system: str | None = None
    model: str | None = None
    headers: dict[HeaderName, str] = {}

    @model_validator(mode="after")
    def _asks_for_something(self) -> MatchShape:
        if not self.model_fields_set:
            raise ValueError("a match needs at least one of user, tool, system, model, headers")
        return self


_ANSWER_KEYS = ("text", "reasoning", "refusal", "calls", "tokens", "usage", "finish", "prompt_token_ids")


class ReplyShape(_Shape):
    """One reply: an answer, an `error`, or a `stream` written by hand; and when it is given."""

    text: Text | None = None
    reasoning: Text | None = None
    refusal: Text | None = None
    calls: list[CallShape] = []
    tokens: list[TokenShape] = []
    prompt_token_ids: list[int] | None = None
    usage: dict[str, Any] | None = None
    finish: str | None = None
    headers: Headers = {}
    faults: dict[str, bool | int | float | str] = {}
    error: ErrorShape | None = None
    stream: list[PartShape] | None = None
    match: MatchShape | None = None
    repeat: Annotated[int, Field(ge=1)] | Literal["always"] | None = None
    default: bool = False

    @model_validator(mode="after")
    def _is_one_thing(self) -> ReplyShape:
        answers = [key for key in _ANSWER_KEYS if key in self.model_fields_set]
        forms = [*answers[:1], *(key for key in ("error", "stream") if getattr(self, key) is not None)]
        if len(forms) > 1:
            raise ValueError(f"{forms[0]} and {forms[1]} cannot both be answered")
        if not forms:
            raise ValueError("nothing to answer: write text, calls, error, stream, …")
        if self.error is not None and self.headers:
            raise ValueError("the headers of an error stand below error")
        if self.text is not None and self.tokens:
            raise ValueError("text and tokens say the same; write one of them")
        return self
