"""The environment of the model's tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping

_PRIVATE_PREFIXES = ("DEEPSEEK_", "OPENAI_", "DSH_", "CORDISD_")

_ALWAYS = {
    "NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PYTHONUNBUFFERED": "1",
    "HISTFILE": "/dev/null",
    "HISTCONTROL": "ignorespace",
    "BASH_SILENCE_DEPRECATION_WARNING": "1",
}
_UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Where nobody can press a key in a pager or answer a question."""

_OF_THE_DAEMONS_SHELL = frozenset(
    {"BASH_ENV", "ENV", "PROMPT_COMMAND", "PS1", "PS2", "SHLVL", "OLDPWD", "PWD", "COLUMNS", "LINES"}
)


def tool_environment(
    inherited: Mapping[str, str],
    *,
    secret_names: Collection[str] = (),
    pass_names: Collection[str] = (),
    extra: Mapping[str, str] | None = None,
    attended: bool = False,
) -> dict[str, str]:
    """What a tool's process gets: `inherited` without secrets, plus `extra`.

    Left out are the names in `secret_names` and those of the daemon's own settings, unless `pass_names`
    lists them. The locale becomes UTF-8 if it is not already. Pagers, editors and questions are turned off
    unless it is `attended` by somebody who can type.
    """
    kept = {
        name: value
        for name, value in inherited.items()
        if name in pass_names
        or not (name in secret_names or name in _OF_THE_DAEMONS_SHELL or name.startswith(_PRIVATE_PREFIXES))
    }
    kept |= _ALWAYS if attended else _ALWAYS | _UNATTENDED
    locale = kept.get("LC_ALL") or kept.get("LC_CTYPE") or kept.get("LANG") or ""
    if "utf8" not in locale.lower().replace("-", ""):
        kept.pop("LC_CTYPE", None)
        kept.pop("LC_ALL", None)
        kept["LANG"] = "C.UTF-8"
    return kept | dict(extra or {})
