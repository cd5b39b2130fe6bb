"""The agent of one session: the entries of its preset, mounted in a scope of their own below the host's."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from cordisd.agent.fingerprint import Fingerprint, take_fingerprint
from cordisd.agent.preset import Preset
from cordisd.agent.profile import Profile, check_not_locked, check_other_locks
from cordisd.agent.settings import LoopSettings
from cordisd.errors import (
    CompositionError,
    CordisError,
    InvalidParamsError,
    PresetError,
    PresetMismatchError,
    ProfileError,
    ProfileOverrideError,
    PromptError,
)
from cordisd.kernel.mount import mount
from cordisd.kernel.scope import Scope
from cordisd.services.models import RequestConfig
from cordisd.services.prompt import UNLISTED_TOOLS, PromptRegistry
from cordisd.services.tools import ToolRegistry
from cordisd.session.realm import Realm

if TYPE_CHECKING:
    from cordisd.preset_shapes import AgentIdentity

logger = logging.getLogger(__name__)

_SENT_AS: Final = {
    "max_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
    "reasoning_effort": "reasoningEffort",
}
"""Request parameters that a client can choose too, and the client's word for each."""


class Agent(NamedTuple):
    """A mounted agent; `unmount(agent.scope)` ends it. The realm is closed by whoever made it."""

    preset: Preset
    scope: Scope
    config: RequestConfig
    fingerprint: Fingerprint
    profile: Profile | None
    """The frozen profile that it is, if it is one."""

    def identity(self) -> AgentIdentity:
        """What names the agent in answers and log headers: `preset`, `digest` and, if frozen, `profile`."""
        found: AgentIdentity = {"preset": self.preset.name, "digest": self.fingerprint.digest}
        if self.profile is not None:
            prompt, tools, profile = self.fingerprint.hashes
            found["profile"] = {
                "id": self.profile.id,
                "prompt_sha256": prompt,
                "tools_sha256": tools,
                "profile_sha256": profile,
            }
        return found


async def mount_agent(host: Scope, preset: Preset, realm: Realm, config: RequestConfig, name: str) -> Agent:
    """Mount `preset` in a new scope called `name`.

    The composition's own agent sees the tools of host entries; a preset is the sole owner of its tools.

    Raises:
        PresetError, CompositionError: an entry did not mount.
        PromptError: its prompt cannot be assembled.
        ProfileError: it is frozen and breaks a rule of frozen profiles.
        InvalidParamsError: the client has chosen a parameter that the agent sets.
    """
    scope = Scope(name, host)
    try:
        _provide(scope, preset, realm, config)
        try:
            await mount(preset.entries, scope)
        except CompositionError as error:
            if preset.name is None:
                raise
            raise PresetError(f'agent-presets: preset "{preset.name}" failed to mount: {error}') from error
        settings = scope.find(LoopSettings) or LoopSettings()
        profile = scope.find(Profile)
        if profile is None and any(entry.entry_class.freezes for entry in preset.entries):
            raise ProfileError(f"{preset} is not frozen by its profile, which is isolated from it")
        _check_choices(preset, config, settings, is_frozen=profile is not None)
        config = _with_parameters(config, settings)
        with assembling(preset):
            fingerprint = take_fingerprint(scope, preset.entries)
        if profile is not None:
            profile.check_rules(fingerprint)
        return Agent(preset, scope, config, fingerprint, profile)
    except BaseException:
        await unmount(scope)
        raise


async def unmount(scope: Scope) -> None:
    """Take back all that an agent's entries have done; what fails is logged, and the rest goes on."""
    try:
        await scope.close()
    except Exception:  # an entry may be anybody's code
        logger.exception("unmounting the agent of %s", scope.name)


def check_lock(agent: Agent, environ: Mapping[str, str]) -> None:
    """Go on only if what is locked under the agent's name, in whatever folder, is this agent.

    Raises:
        ProfileOverrideError: a variable of `environ` would change a pinned value.
        ProfileHashMismatchError: it is not what was locked, or not frozen any more, or not locked.
        ProfileError: a lock file cannot be read.
    """
    if agent.profile is None:
        check_not_locked(agent.preset)
    else:
        agent.profile.check_locked(agent.fingerprint, environ)
    check_other_locks(agent.preset, agent.fingerprint.hashes)


def check_required(agent: Agent, digest: str | None) -> None:
    """Go on only if the agent is the one that a client requires.

    Raises:
        PresetMismatchError: its digest is another.
    """
    if digest is not None and digest != agent.fingerprint.digest:
        raise PresetMismatchError(
            f"{agent.preset} has the digest {agent.fingerprint.digest}, required is {digest}"
        )


@contextmanager
def assembling(preset: Preset) -> Iterator[None]:
    """Around what asks sections and listeners for a prompt: whatever they raise becomes a `PromptError`."""
    try:
        yield
    except CordisError:
        raise
    except Exception as error:  # they may be anybody's code
        cause = f"{type(error).__name__}: {error}"
        raise PromptError(f"the prompt of {preset} cannot be assembled: {cause}") from error


def _provide(scope: Scope, preset: Preset, realm: Realm, config: RequestConfig) -> None:
    """Put into the scope what the entries build on."""
    prompts = PromptRegistry(scope.get(PromptRegistry))
    prompts.add_variable("provider", config.provider)
    prompts.add_variable("model", config.model)
    prompts.add_variable("cwd", lambda _: realm.cwd)
    tools = ToolRegistry(scope.get(ToolRegistry) if preset.name is None else None)
    if preset.name is not None:  # nor is the order of its tools the host's
        prompts.tool_order = (UNLISTED_TOOLS,)
    scope.provide(PromptRegistry, prompts)
    scope.provide(ToolRegistry, tools)
    scope.provide(Preset, preset)
    scope.provide(Realm, realm, private=realm.private)


def _check_choices(preset: Preset, config: RequestConfig, settings: LoopSettings, *, is_frozen: bool) -> None:
    """What an agent sets, a client cannot choose: one of the two would have to be ignored."""
    chosen = {"maxTokens": config.chosen_max_tokens, "reasoningEffort": config.chosen_effort}
    for parameter, field in _SENT_AS.items():
        if parameter in settings.parameters and chosen[field] is not None:
            refuse = ProfileOverrideError if is_frozen else InvalidParamsError
            raise refuse(f"{field} cannot be chosen: {preset} sets the parameter {parameter} itself")


def _with_parameters(config: RequestConfig, settings: LoopSettings) -> RequestConfig:
    """`config` with what the agent sets; a limit or effort that an adapter would supply gives way."""
    sets = {_SENT_AS[name] for name in settings.parameters if name in _SENT_AS}
    return config._replace(
        parameters=settings.parameters,
        adapter_defaults=config.adapter_defaults - sets,
        max_tokens=None if "maxTokens" in sets else config.max_tokens,
        reasoning_effort=None if "reasoningEffort" in sets else config.reasoning_effort,
    )
