"""The words of the wire, used by the daemon and by the SDK: names of methods and notifications, limits.

Newline-delimited JSON-RPC 2.0. `shapes.py` describes params and results.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Grows when a client of the previous version would misread us; additions do not change it."""

MAX_FRAME_BYTES: Final = 64 * 2**20
"""Longest line either side accepts, newline excluded; `initialize` announces the daemon's own."""

INITIALIZE: Final = "initialize"
SHUTDOWN: Final = "shutdown"
PING: Final = "rpc.ping"
DISCOVER: Final = "rpc.discover"
SESSION_CREATE: Final = "session/create"
SESSION_ATTACH: Final = "session/attach"
SESSION_DETACH: Final = "session/detach"
SESSION_PROMPT: Final = "session/prompt"
SESSION_STEER: Final = "session/steer"
SESSION_CANCEL: Final = "session/cancel"
SESSION_CLOSE: Final = "session/close"
SESSION_LIST: Final = "session/list"
SESSION_GET: Final = "session/get"
SESSION_RESUME: Final = "session/resume"
SESSION_EVENTS: Final = "session/events"
SESSION_FORK: Final = "session/fork"
SESSION_OUTCOME: Final = "session/outcome"
SESSION_METRICS: Final = "session/metrics"
PRESET_LIST: Final = "preset/list"
PRESET_RENDER: Final = "preset/render"
PRESET_SELECT: Final = "preset/select"
PROFILE_GET: Final = "profile/get"
WORKING_DIRECTORY_GET: Final = "session/working-directory/get"
WORKING_DIRECTORY_SET: Final = "session/working-directory/set"

METHODS: Final = (  # in the order in which a reader should meet them
    INITIALIZE,
    SHUTDOWN,
    PING,
    DISCOVER,
    SESSION_CREATE,
    SESSION_ATTACH,
    SESSION_DETACH,
    SESSION_PROMPT,
    SESSION_STEER,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_LIST,
    SESSION_GET,
    SESSION_RESUME,
    SESSION_EVENTS,
    SESSION_FORK,
    SESSION_OUTCOME,
    SESSION_METRICS,
    WORKING_DIRECTORY_GET,
    WORKING_DIRECTORY_SET,
    PRESET_LIST,
    PRESET_RENDER,
    PRESET_SELECT,
    PROFILE_GET,
)

SESSION_EVENT: Final = "session.event"
SESSION_STATUS: Final = "session.status"
SESSION_COMPLETED: Final = "session.completed"
SUBAGENT_STARTED: Final = "subagent.started"
SUBAGENT_FINISHED: Final = "subagent.finished"

NOTIFICATIONS: Final = (
    SESSION_EVENT,
    SESSION_STATUS,
    SESSION_COMPLETED,
)
"""What this daemon sends; published daemons also announce subagents."""
