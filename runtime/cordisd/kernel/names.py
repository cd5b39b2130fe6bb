"""What an entry's name stands for: our names, the published names, plug-ins, then `package.module:Class`.

Names are strings here; an entry's module is imported only when a composition uses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

from cordisd.errors import CordisError, nearest
from cordisd.kernel.entry import Entry

ENTRY_POINT_GROUP: Final = "cordisd.entries"
PUBLISHED_SCOPE: Final = "@deepseek-ai/"

OURS: Final[Mapping[str, str]] = {
    "agent": "cordisd.entries.agent:AgentEntry",
    "bash": "cordisd.entries.bash:BashEntry",
    "host-section": "cordisd.entries.section:HostSectionEntry",
    "limits": "cordisd.entries.limits:LimitsEntry",
    "openai": "cordisd.entries.openai:OpenAIEntry",
    "persona": "cordisd.entries.persona:PersonaEntry",
    "presets": "cordisd.entries.presets:PresetsEntry",
    "profile": "cordisd.entries.profile:ProfileEntry",
    "recorder": "cordisd.entries.recorder:RecorderEntry",
    "replay": "cordisd.entries.replay:ReplayEntry",
    "runtime-context": "cordisd.entries.runtime_context:RuntimeContextEntry",
    "section": "cordisd.entries.section:SectionEntry",
    "sessions-jsonl": "cordisd.entries.sessions_jsonl:SessionsJsonlEntry",
    "str-replace-editor": "cordisd.entries.str_replace_editor:StrReplaceEditorEntry",
    "terminal": "cordisd.entries.terminal:TerminalEntry",
}
PUBLISHED: Final[Mapping[str, str]] = {
    "dsh-agent-presets": OURS["presets"],
    "dsh-agent-spine-demo": "cordisd.entries.agent_spine:AgentSpineEntry",
    "dsh-llm-deepseek": "cordisd.entries.llm_deepseek:LlmDeepseekEntry",
    "dsh-llm-replay": OURS["replay"],
    "dsh-persona": OURS["persona"],
    "dsh-session-persistence-jsonl": OURS["sessions-jsonl"],
    "dsh-tool-bash-persistent": OURS["bash"],
    "dsh-tool-str-replace-editor": OURS["str-replace-editor"],
    "dsh-bash-local": "cordisd.entries.plumbing:BashLocalEntry",
    "dsh-fs-local": "cordisd.entries.plumbing:FsLocalEntry",
    "dsh-llm": "cordisd.entries.plumbing:LlmEntry",
    "dsh-llm-retry": "cordisd.entries.plumbing:LlmRetryEntry",
    "dsh-sandbox-local": "cordisd.entries.plumbing:SandboxLocalEntry",
    "dsh-sandbox-policy": "cordisd.entries.plumbing:SandboxPolicyEntry",
    "dsh-sdk-jsonrpc-server": "cordisd.entries.plumbing:JsonRpcServerEntry",
    "dsh-session-checkpoint-policy": "cordisd.entries.plumbing:SessionCheckpointPolicyEntry",
    "dsh-session-persistence": "cordisd.entries.plumbing:SessionPersistenceEntry",
    "dsh-session-title": "cordisd.entries.plumbing:SessionTitleEntry",
    "dsh-subprocess-local": "cordisd.entries.plumbing:SubprocessLocalEntry",
    "dsh-terminal": "cordisd.entries.plumbing:TerminalEntry",
    "dsh-terminal-bash": "cordisd.entries.plumbing:TerminalBashEntry",
}
"""Names of the reference, without their scope. Unknown config keys are warnings for these."""

REFERENCE: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


class EntryNameError(CordisError):
    """A name stands for nothing that can be loaded; the message says why."""


class EntryName(NamedTuple):
    """A name that resolved: where its class is, and whether it is a published one."""

    reference: str
    is_published: bool

    def import_class(self) -> type[Entry]:
        """The entry class.

        Raises:
            EntryNameError: the module or class is missing, fails to import, or is no `Entry`.
        """
        module_name, _, class_name = self.reference.partition(":")
        try:
            found = getattr(import_module(module_name), class_name, None)
        # A plug-in's module may do anything; it must not hide other problems.
        except (Exception, SystemExit) as error:
            message = f"failed to import {self.reference}: {type(error).__name__}: {error}"
            raise EntryNameError(message) from error
        if not isinstance(found, type) or not issubclass(found, Entry):
            what = "does not exist" if found is None else "is not a subclass of cordisd.kernel.entry.Entry"
            raise EntryNameError(f"{self.reference} {what}")
        return found


def is_published(name: str) -> bool:
    """Whether a name is one of the reference's, with or without its scope."""
    return name.removeprefix(PUBLISHED_SCOPE) in PUBLISHED


def canonical(name: str) -> str:
    """The one name of what `name` stands for: ours, else the published one without its scope, else `name`.

    Two names have the same one exactly if they stand for the same entry.
    """
    short = name.removeprefix(PUBLISHED_SCOPE) if is_published(name) else name
    reference = PUBLISHED.get(short, OURS.get(short, short))
    known = (*OURS.items(), *PUBLISHED.items())
    return next((one for one, its in known if its == reference), short)


def resolve(name: str) -> EntryName:
    """What `name` stands for. A plug-in never shadows a built-in name.

    Raises:
        EntryNameError: nothing; the message gives the nearest names.
    """
    if name in OURS:
        return EntryName(OURS[name], is_published=False)
    if is_published(name):
        return EntryName(PUBLISHED[name.removeprefix(PUBLISHED_SCOPE)], is_published=True)
    if re.fullmatch(REFERENCE, name):
        return EntryName(name, is_published=False)
    return EntryName(_plug_in(name), is_published=False)


def _plug_in(name: str) -> str:
    """The reference that an installed distribution registers under `name`."""
    from importlib.metadata import entry_points  # 15 ms to import, and reads every installed distribution

    points = entry_points(group=ENTRY_POINT_GROUP)
    found = {point.value for point in points if point.name == name}
    if len(found) > 1:
        raise EntryNameError(f'"{name}" is registered by several plug-ins: {", ".join(sorted(found))}')
    if found:
        return found.pop()
    known = [*OURS, *PUBLISHED, *points.names]
    hint = nearest(name.removeprefix(PUBLISHED_SCOPE), known)
    raise EntryNameError(
        f'failed to import loader entry: unknown name "{name}"{hint}; known are {", ".join(OURS)}, '
        f"the published {PUBLISHED_SCOPE}dsh-… names, plug-ins (entry points in {ENTRY_POINT_GROUP}) "
        "and package.module:Class"
    )
