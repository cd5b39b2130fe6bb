"""Entry `replay`: a model that plays recordings, without a socket (`protocol.md` 7).

A recording is played strictly: the model rows of the composition stay as they are and need no key, each
request that they would send is compared with the recorded one, and so is each result of a tool. A session log
is played by its cursor: the first session that asks plays the first log, the next new session the next one,
and what they ask is not looked at. Tools run for real.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple, NoReturn

from cordisd.errors import CompositionError, CordisError, InvalidParamsError, Problem, nearest
from cordisd.events import Failure, JsonObject, encode_json
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.replay.overrides import apply_overrides
from cordisd.replay.player import OnDivergence, Player, Tools
from cordisd.replay.recording import is_recording, read_recording
from cordisd.replay.scripts import Call, Hang, Play, Script, playable, read_script
from cordisd.replay.secrets import secret_values
from cordisd.replay.tokens import Request, fill
from cordisd.services.models import Chunk, ModelInfo, ModelRegistry, ModelRequest, RequestConfig
from cordisd.services.retry import RetryPolicy
from cordisd.services.secrets import SecretNames
from cordisd.services.traffic import Traffic
from cordisd.settings import EntryConfig, NonNegativeInt, PositiveInt

DEFAULT_PROVIDER: Final = "deepseek-official"
MAX_BATCH: Final = 256
_OF_STRICT: Final = {"files", "tools", "on_divergence", "recorded_pace"}
_OF_CURSOR: Final = {"override_file", "child_files", "providers", "pace_ms"}


class ReplayModel(EntryConfig):
    """What is said of one model; a replayed request is answered whatever the model."""

    id: str
    """The model's name in requests."""
    name: str | None = None
    """A name for people."""
    context_window: PositiveInt | None = None
    """Tokens that the model can take."""
    input_modalities: list[str] = ["text"]
    """Kinds of input."""
    default_max_tokens: PositiveInt | None = None
    """Tokens of an answer when the client sets no limit."""
    reasoning_efforts: list[str] | None = None
    """Efforts that the model knows; without this list any is accepted."""
    default_reasoning_effort: str | None = None
    """Effort when the client names none."""


class ReplayProvider(EntryConfig):
    """One provider that the recording answers for."""

    id: str
    """The provider's name in requests."""
    name: str | None = None
    """A name for people."""
    models: list[ReplayModel] = []
    """Its models."""
    retry_policy: RetryPolicy = RetryPolicy()
    """Which failures are tried again. Each try plays the next recorded call."""


class ReplayConfig(EntryConfig):
    """Which recordings are played, and as whom."""

    mode: Literal["strict", "refresh", "cursor"] | None = None
    """`strict`: each request must be the recorded one; takes recordings. `refresh`: as `strict`, but nothing
    is compared, so that a `recorder` writes down what is asked now. `cursor`: calls are played in the
    recorded order, whatever is asked; takes session logs. Absent: `strict` for a recording, else `cursor`."""
    file: str | None = None
    """Recording or fixture of the first session; default: the variable DSH_SNAPSHOT_FILE."""
    files: list[str] = []
    """Further recordings, in strict mode."""
    tools: Tools = "live"
    """In strict mode, `live`: tools run, and a result that differs from the recorded one fails the run.
    `recorded`: nothing runs, and calls have their recorded results."""
    on_divergence: OnDivergence = "fail"
    """In strict mode, of a result that differs: `fail` the run, or `event`: log a warning, go on, and compare
    later requests with the recorded result in its place."""
    recorded_pace: bool = False
    """In strict mode: chunks come when they came; else at once."""
    override_file: str | None = None
    """Scripted calls in the place of recorded ones; default: DSH_SNAPSHOT_OVERRIDE. It need not exist."""
    child_files: list[str] | None = None
    """Fixtures of further sessions; default: DSH_SNAPSHOT_CHILD_FILES, separated as in PATH."""
    providers: list[ReplayProvider] | None = None
    """Providers to answer for; default: `deepseek-official` and those that the fixtures name."""
    pace_ms: NonNegativeInt = 0
    """Delay before each chunk."""


@dataclass(slots=True)
class Replay:
    """The scripts of a scenario, and how far each live session has played its own."""

    scripts: Sequence[Sequence[Call]]
    _sessions: dict[str, tuple[int, count[int]]] = field(default_factory=dict)

    def next_call(self, session_id: str) -> Call:
        """The call that this session plays next; one that fails when the recording has no more."""
        order, cursor = self._sessions.setdefault(session_id, (len(self._sessions), count()))
        if order >= len(self.scripts):
            return _failing(
                f"llm-replay: a model call arrived from an unrecorded session (#{order + 1}); the scenario "
                f"records {len(self.scripts)}; re-record the scenario"
            )
        at, script = next(cursor), self.scripts[order]
        if at >= len(script):
            return _failing(
                f"llm-replay: script exhausted — session requested model call #{at + 1} but its script has "
                f"only {len(script)}; re-record the scenario"
            )
        return script[at]


class ReplayAdapter(NamedTuple):
    """Answers for one provider from a replay that several may share."""

    provider: str
    retry_policy: RetryPolicy
    models: dict[str, ReplayModel]
    replay: Replay
    pace_s: float

    def describe(self, model: str) -> ModelInfo:
        """What the catalog says of `model`; nothing of one that it does not list."""
        known = self.models.get(model)
        if known is None:
            return ModelInfo()
        return ModelInfo(known.context_window, known.default_max_tokens, known.default_reasoning_effort)

    def check_effort(self, model: str, effort: str) -> None:
        """Raise `InvalidParamsError` when the catalog lists the efforts of `model`, and not this one."""
        efforts = self.models[model].reasoning_efforts if model in self.models else None
        if efforts is not None and effort not in efforts:
            raise InvalidParamsError(
                f'reasoningEffort "{effort}" is not supported by {self.provider}/{model}'
                f"{nearest(effort, efforts)}; supported: {', '.join(efforts)}"
            )

    def parameters(self, config: RequestConfig) -> JsonObject:
        """Those that the session's agent sets; nothing is sent."""
        return dict(config.parameters)

    def encode_message(self, message: JsonObject) -> bytes:
        """The message as it is logged: `fromRequest` tokens look for their text in it."""
        return encode_json(message)

    def encode_request(self, request: ModelRequest) -> bytes:
        """What a recording answers to, as one JSON object; nothing is sent."""
        tools = encode_json([tool.as_json() for tool in request.tools])
        head = encode_json({"model": request.config.model, "system": request.system})[:-1]
        return b'%b,"tools":%b,"messages":[%b]}' % (head, tools, b",".join(request.messages))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Chunk]]:
        """The chunks of this session's next call, each after `pace_s` if that is set."""
        call = self.replay.next_call(request.session_id)
        try:
            chunks = await _hang(call, request) if isinstance(call, Hang) else _played(call, request)
        except CordisError as problem:
            chunks = [_failed({"message": str(problem), "code": "UNKNOWN"})]
        batch_size = 1 if self.pace_s else MAX_BATCH
        for start in range(0, len(chunks), batch_size):
            await asyncio.sleep(self.pace_s)
            yield chunks[start : start + batch_size]


class ReplayEntry(Entry):
    """Adds the replay adapters to the `ModelRegistry`."""

    Config = ReplayConfig
    lifetime = "host"
    needs = (ModelRegistry, Traffic, SecretNames)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Read the fixtures, and answer for their providers until the daemon ends.

        Raises:
            CompositionError: a fixture or the sidecar is missing or malformed; with file and line.
        """
        config: ReplayConfig = self.config
        paths = [Path(path) for path in (_first_file(config), *config.files)]
        is_strict = is_recording(paths[0]) if config.mode is None else config.mode != "cursor"
        _check_mode(config, is_strict=is_strict)
        if is_strict:
            key_names = scope.get(SecretNames).names
            player = Player(
                [read_recording(path) for path in paths],
                config.tools,
                config.on_divergence,
                config.recorded_pace,
                compares=config.mode != "refresh",
                secrets=lambda names: secret_values({*key_names, *names}, os.environ),
            )
            scope.defer(scope.get(Traffic).add(player, plays=True))
            yield
            return
        scripts = _read_scripts(config)
        replay = Replay([playable(script.calls) for script in scripts])
        registry = scope.get(ModelRegistry)
        providers = _recorded_providers(scripts) if config.providers is None else config.providers
        for provider in providers:
            models = {model.id: model for model in provider.models}
            pace_s = config.pace_ms / 1000
            scope.defer(
                registry.add(ReplayAdapter(provider.id, provider.retry_policy, models, replay, pace_s))
            )
        yield


def _check_mode(config: ReplayConfig, *, is_strict: bool) -> None:
    """Refuse what would have no effect.

    Raises:
        CompositionError: the config has members of the other mode, or a recording is to be played by cursor.
    """
    if not is_strict and is_recording(Path(_first_file(config))):
        text = f"{config.file} is a recording, which mode: strict or refresh plays; cursor plays session logs"
        raise CompositionError([Problem("replay", text)])
    idle = sorted(config.model_fields_set & (_OF_CURSOR if is_strict else _OF_STRICT))
    if idle:
        names = ", ".join(str(ReplayConfig.model_fields[name].alias) for name in idle)
        played = "a recording is played strictly" if is_strict else "a session log is played by its cursor"
        raise CompositionError([Problem("replay", f"{names} would have no effect: {played}")])


def _first_file(config: ReplayConfig) -> str:
    file = os.environ.get("DSH_SNAPSHOT_FILE") if config.file is None else config.file
    if not file:
        raise CompositionError([Problem("replay", "no fixture: set file, or the variable DSH_SNAPSHOT_FILE")])
    return file


def _read_scripts(config: ReplayConfig) -> list[Script]:
    """The scripts in the order in which sessions are bound to them."""
    file = _first_file(config)
    overrides = config.override_file
    if overrides is None:
        overrides = os.environ.get("DSH_SNAPSHOT_OVERRIDE")
    children = config.child_files
    if children is None:
        children = os.environ.get("DSH_SNAPSHOT_CHILD_FILES", "").split(os.pathsep)
    first = read_script(Path(file))
    if overrides:
        first.calls = apply_overrides(Path(overrides), first.calls)
    rest = [read_script(Path(child), is_child=True) for child in children if child]
    rest.sort(key=lambda script: (script.header.created_at, script.header.id))
    return [first, *rest]


def _recorded_providers(scripts: Sequence[Script]) -> list[ReplayProvider]:
    recorded = {provider for script in scripts for provider in script.providers}
    return [ReplayProvider(id=provider) for provider in sorted(recorded | {DEFAULT_PROVIDER})]


async def _hang(call: Hang, request: ModelRequest) -> NoReturn:
    """Say that the call has arrived, then wait until the task is cancelled."""
    if call.ready_file is not None:
        path = Path(fill(call.ready_file, Request(request.cwd, request.messages)))
        try:
            path.touch()
        except OSError as problem:
            raise CordisError(
                f"llm-replay: cannot touch the ready file {path}: {problem.strerror}"
            ) from problem
    await asyncio.Event().wait()
    raise AssertionError("nothing sets this event")


def _played(call: Play, request: ModelRequest) -> Sequence[Chunk]:
    context = Request(request.cwd, request.messages)
    chunks: list[Chunk] = [fill(chunk, context) for chunk in call.chunks]
    return chunks if call.failure is None else [*chunks, _failed(call.failure)]


def _failing(message: str) -> Play:
    return Play([], failure={"message": message, "code": "UNKNOWN"})


def _failed(failure: Failure) -> Chunk:
    return {"type": "finish", "reason": {"kind": "error", "failure": dict(failure)}}
