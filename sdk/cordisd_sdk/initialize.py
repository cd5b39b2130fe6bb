"""What a client says first: what its sessions are to be, and the token."""

from __future__ import annotations

import os
from typing import Final

from cordisd import shapes
from cordisd.events import JsonObject
from cordisd_sdk.errors import SdkError
from cordisd_sdk.launch import DaemonOptions, workspace

DEFAULT_PROVIDER: Final = "deepseek-official"
DEFAULT_MODEL: Final = "deepseek-v4-flash"


def initialize_params(options: DaemonOptions) -> JsonObject:
    """The params of `initialize`.

    Raises:
        SdkError: the token's file cannot be read, or is empty.
    """
    params: shapes.InitializeParams = {
        "cwd": workspace(options),
        "provider": options.get("provider", DEFAULT_PROVIDER),
        "model": options.get("model", DEFAULT_MODEL),
    }
    if "max_tokens" in options:
        params["maxTokens"] = options["max_tokens"]
    if "reasoning_effort" in options:
        params["reasoningEffort"] = options["reasoning_effort"]
    if "preset" in options:
        params["preset"] = options["preset"]
    if "require_preset" in options:
        params["requirePreset"] = options["require_preset"]
    token = _read_token(options)
    return {**params} if token is None else {**params, "token": token}


def _read_token(options: DaemonOptions) -> str | None:
    if "token_file" not in options:
        return options.get("token")
    path = os.fspath(options["token_file"])
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SdkError(f"the token cannot be read: {error}") from error
    if not token:
        raise SdkError(f"the token cannot be read: {path} is empty")
    return token
