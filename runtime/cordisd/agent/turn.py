"""One turn: steps of a model request and the tool calls it asked for, until the model is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cordisd.agent import inbox
from cordisd.agent.budget import Budget
from cordisd.agent.calls import refuse_calls, run_calls
from cordisd.agent.fingerprint import sha256
from cordisd.agent.outcome import Ending, stopped
from cordisd.agent.profile import Profile
from cordisd.agent.request import Answer, ask_model, log_answer
from cordisd.agent.settings import LoopSettings
from cordisd.errors import ProfileOverrideError
from cordisd.events import JsonObject, encode_json
from cordisd.services.models import ModelRequest
from cordisd.services.prompt import Assembly, PromptRegistry, interpolate, render
from cordisd.services.tools import Tool, ToolRegistry, ToolSchema
from cordisd.session.session import Session, new_message


async def run_turn(
    session: Session,
    turn: int,
    claimed: list[JsonObject],
    settings: LoopSettings,
    budget: Budget | None = None,
) -> Ending:
    """Run the steps of a turn that began with the messages `claimed`, as far as `budget` goes.

    Raises:
        PromptError: the prompt cannot be assembled (before the step opens) or rendered (within it).
        ModelError: a model request failed for good.
    """
    kind = "completed"
    step = 0
    while True:
        step += 1
        tools = session.scope.get(ToolRegistry).all()
        assembly = assemble(session, tools)
        if budget is not None:
            claimed += _take_notice(session, budget)
            budget.n_requests += 1
        answer = await _step(session, turn, step, claimed, assembly, tools, settings)
        await session.log.end_step()
        if answer.reason == "max-tokens":
            kind = "max-tokens"
        ran_tools = bool(answer.calls) and answer.reason != "max-tokens"
        if not ran_tools and not session.memory.inbox["next-step"]:
            return Ending({"kind": kind})
        if budget is not None and (stop := budget.stop()) is not None:
            return stopped(stop)
        claimed = inbox.claim(session, first_step=False)


def _take_notice(session: Session, budget: Budget) -> list[JsonObject]:
    """The message that says how little is left, if it is time: by way of the inbox, as every message."""
    notice = budget.notice()
    if notice is None:
        return []
    message = new_message([{"type": "text", "text": notice}], {"kind": "limit-notice"})
    inbox.insert(session, "next-step", message)
    return inbox.claim(session, first_step=False)


def assemble(session: Session, tools: Mapping[str, Tool]) -> Assembly:
    """The prompt of the next step, with `tools` on offer.

    Raises:
        PromptError: it cannot be assembled.
    """
    return session.scope.get(PromptRegistry).assemble([tool.schema for tool in tools.values()])


def take_messages(session: Session, turn: int, claimed: list[JsonObject]) -> None:
    """Put claimed messages into the history in a step of their own, without asking the model."""
    session.log.append("step/start", {"turn": turn, "step": 1})
    try:
        for message in claimed:
            session.add_user_message(message)
    finally:
        session.log.append("step/end", {"turn": turn, "step": 1})


async def _step(
    session: Session,
    turn: int,
    step: int,
    claimed: list[JsonObject],
    assembly: Assembly,
    tools: dict[str, Tool],
    settings: LoopSettings,
) -> Answer:
    place = {"turn": turn, "step": step}
    session.log.append("step/start", place)
    try:
        for message in claimed:
            session.add_user_message(message)
        request = prepare_request(session, assembly, first_step=step == 1)
        answer = await ask_model(session, turn, step, request)
        marks: JsonObject = {}
        if "finishReason" in answer.finish:
            marks["finishReason"] = answer.finish["finishReason"]
        cut = answer.reason == "max-tokens" and bool(answer.calls)
        if cut:
            marks["truncated"] = True
        log_answer(session, turn, step, answer, answer.blocks, **marks)
        if cut:
            refuse_calls(session, turn, step, answer.calls)
        elif answer.calls:
            await run_calls(session, turn, step, answer.calls, tools, settings.max_parallel_tool_calls)
        return answer
    finally:
        session.log.append("step/end", place)


def prepare_request(session: Session, assembly: Assembly, *, first_step: bool) -> ModelRequest:
    """The request of this step; logs the header and the context where they differ from the last ones.

    Raises:
        PromptError: the prompt cannot be rendered.
        ProfileError: the agent is frozen, and this is not what was locked, or not what was sent before.
    """
    system = render(assembly)
    tools: Sequence[ToolSchema] = assembly.tools
    profile = session.scope.find(Profile)
    if profile is not None:
        tools = profile.check_request(system, tools, assembly.contexts)
    if first_step:
        _tell_runtime_context(session, assembly)
    config = session.config
    settings: JsonObject = {"provider": config.provider, "model": config.model}
    if config.max_tokens is not None:
        settings["maxTokens"] = config.max_tokens
    if config.reasoning_effort is not None:
        settings["reasoningEffort"] = config.reasoning_effort
    parameters = session.adapter.parameters(config)
    settings |= {name: parameters[name] for name in ("temperature", "stop") if name in parameters}
    header: JsonObject = {"config": settings}
    if config.adapter_defaults:
        header["adapterDefaults"] = dict.fromkeys(sorted(config.adapter_defaults, reverse=True), True)
    if system:
        header["system"] = system
    if tools:
        header["tools"] = [tool.as_json() for tool in tools]
    if profile is not None:
        _check_one_header(session, profile, header, parameters)
    _log_header(session, header, parameters)
    context: JsonObject = {"provider": config.provider, "model": config.model}
    if (window := session.adapter.describe(config.model).context_window) is not None:
        context["contextWindow"] = window
    if context != session.memory.context:
        session.memory.context = context
        session.log.append("request/context", context)
    return ModelRequest(
        session.id,
        session.realm.cwd,
        config,
        system,
        tools,
        session.history.messages(),
        session.history.call_ids,
    )


def _check_one_header(session: Session, profile: Profile, header: JsonObject, parameters: JsonObject) -> None:
    """A frozen session has one `request/header` (FP-7), so that its trajectory is one token sequence.

    Raises:
        ProfileOverrideError: this request would need another, after a resume with another model for example.
    """
    memory = session.memory
    if memory.header is not None and (header, parameters) != (memory.header, memory.parameters):
        raise ProfileOverrideError(
            f'session "{session.id}" of the frozen profile "{profile.id}" goes on as it began, with '
            f"{memory.header['config'] | memory.parameters}; this request would be sent with "
            f"{header['config'] | parameters}"
        )


def _log_header(session: Session, header: JsonObject, parameters: JsonObject) -> None:
    memory, resumed = session.memory, session.restored
    last = memory.header
    session.restored = False
    if (header, parameters) == (last, memory.parameters):
        return
    parts = ("config", "adapterDefaults", "system", "tools")
    changed = [part for part in parts if header.get(part) != (last or {}).get(part)]
    if parameters != memory.parameters:
        changed.append("parameters")
    data: JsonObject = {"header": header, "reason": "initial"}
    if last is None:
        _log_agent(session)
    else:
        data["reason"] = "resume" if resumed else "change"
        data["cause"] = changed
    if parameters:
        data["parameters"] = parameters
    hashed = {**header, **data}
    data["sha256"] = {
        part: sha256(encode_json(hashed[part]))
        for part in ("system", "tools", "parameters")
        if part in hashed
    }
    memory.header, memory.parameters = header, parameters
    session.log.append("request/header", data)


def _log_agent(session: Session) -> None:
    """Log which preset the session was made with; not as its first event, which published readers expect."""
    header = session.header
    if header.agent_preset is not None:
        session.log.append("agent-preset/selected", {"agentPreset": header.agent_preset})
    if "profile" in header.cordisd:
        session.log.append("profile/verified", header.cordisd["profile"], ignorable=True)


def _tell_runtime_context(session: Session, assembly: Assembly) -> None:
    """Append the runtime context as a user message when its text differs from what the model was told."""
    sections = {one.name: interpolate(one, assembly.variables) for one in assembly.contexts}
    text = "\n\n".join(text for text in sections.values() if text)
    if text == session.memory.runtime_context:
        return
    session.memory.runtime_context = text
    told = f"Current runtime context:\n\n{text}" if text else "The runtime context no longer applies."
    source = {"kind": "runtime-context", "form": "snapshot" if text else "cleared", "text": text}
    session.add("user/message", new_message([{"type": "text", "text": told}], source))
