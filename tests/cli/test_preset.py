"""`cordisd preset`, in this process where nothing speaks against it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path

import pytest

from cli.conftest import MODEL, ROSTER, Ended, Folder
from cordisd import mock as model
from daemon import Daemon

PROMPT = 'Gr\u00fc\u00df {{cwd}} \u2028 und \\ "alle" \U0001f600\n'
PERSONA = "- id: who\n  name: persona\n  config:\n    text: Hello.\n"


def _begin(daemon: Daemon, cwd: Path, presets: list[str | None]) -> None:
    """One session for each of `presets`, prompted once."""
    daemon.initialize(maxTokens=77)
    for preset in presets:
        chosen = {} if preset is None else {"preset": preset}
        made = daemon.request("session/create", {"cwd": str(cwd), **chosen})
        daemon.run(made["sessionId"], PROMPT)


def test_a_rendered_request_is_what_the_model_gets_of_every_shipped_agent(
    folder: Folder, tmp_path: Path
) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    hosted: list[str | None] = [None, "minimal", "rl-minimal-v1"]
    with model.MockModelThread([model.text("ok")] * 4) as mock:
        with Daemon(cwd, composition="host", model_url=mock.url) as daemon:
            _begin(daemon, cwd, hosted)
        with Daemon(cwd, model_url=mock.url) as daemon:
            _begin(daemon, cwd, [None])
    received = [request.body for request in mock.requests]
    variables = ["--prompt", PROMPT, "--cwd", str(cwd), "--max-tokens", "77"]
    rendered = [
        folder.run_bare("preset", "render", *names, *variables).out.encode("utf-8")
        for names in ([], ["minimal"], ["rl-minimal-v1"], ["minimal.cordis.yml"])
    ]
    assert rendered == received
    assert b"Working directory: " + bytes(cwd) in received[0] and bytes(cwd) not in received[1]


def test_the_parts_of_a_request_are_what_the_hashes_are_of(folder: Folder) -> None:
    profile = json.loads(folder.run("profile", "show", "rl-minimal-v1", "--json").out)
    for part, name in (("system", "prompt_sha256"), ("tools", "tools_sha256")):
        ended = folder.run("preset", "render", "rl-minimal-v1", "--part", part)
        assert hashlib.sha256(ended.out.encode()).hexdigest() == profile[name]
    words = ["preset", "render", "minimal", "--part", "parameters"]
    assert folder.run(*words).out == "{}"
    assert folder.run(*words, "--max-tokens", "9", "--reasoning-effort", "low").out == (
        '{"max_tokens":9,"reasoning_effort":"low"}'
    )


def test_a_prompt_comes_from_stdin_as_it_is(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def stdin(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    stdin("  zw\u00f6lf\r\n".encode())
    rendered = json.loads(folder.run("preset", "render", "minimal", "--prompt", "-").out)
    assert rendered["messages"][-1] == {"role": "user", "content": "  zw\u00f6lf\r\n"}
    assert json.loads(folder.run("preset", "render", "minimal").out)["messages"][-1]["content"] == ""
    stdin(b"\xff")
    refused = folder.run("preset", "render", "minimal", "--prompt", "-")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("cordisd: the prompt is not UTF-8") and refused.err.count("\n") == 1


def test_a_name_is_a_preset_a_folder_or_a_composition(folder: Folder) -> None:
    folder.add("other", PERSONA)
    (folder.root / "own.cordis.yml").write_text(MODEL + PERSONA.replace("Hello.", "Own {{model}}."))

    def system(*words: str) -> str:
        ended = folder.run("preset", "render", *words, "--part", "system", "--model", "m1")
        assert ended.code == 0, ended.err
        return ended.out

    for name in ("other", "presets/other", "./presets/other/", "presets/other/agent.cordis.yml"):
        assert system(name) == "Hello."
    assert system("own.cordis.yml") == "Own m1."
    assert system("minimal.cordis.yml") == "You are a helpful software engineer assistant."
    assert system() == ""  # roster.yml has an agent without a prompt
    (folder.root / "with.yml").write_text(
        "- insert:\n    - {id: p, name: persona, config: {text: Patched.}}\n"
    )
    assert system("--patch", "with.yml") == "Patched."


def test_the_list_shows_every_preset_and_why_a_broken_one_is_broken(folder: Folder) -> None:
    folder.add("broken", "- {id: shell, name: bassh}\n- {id: x, name: persona}\n", "name: Never mind\n")
    composition = ROSTER.replace("roots", "default: minimal, roots")
    (folder.root / "roster.yml").write_text(composition)
    ended = folder.run("preset", "list")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["name", "minimal*", "rl-minimal-v1", "broken"]
    assert lines[2].endswith("frozen") and "RL minimal, version 1" in lines[2]
    assert lines[3].split()[-2:] == ["broken", "-"]
    assert 'presets/broken/agent.cordis.yml:1, entry "shell": ' in lines[4] and lines[4].startswith("    ")
    assert 'agent.cordis.yml:2, entry "x": ' in lines[5]

    told = json.loads(folder.run("preset", "list", "--json").out)
    assert told["default"] == "minimal"
    assert [one["name"] for one in told["presets"]] == ["minimal", "rl-minimal-v1", "broken"]
    assert told["presets"][0]["digest"].startswith(lines[1].split()[-2])
    assert told["presets"][2]["digest"] is None and "bassh" in told["presets"][2]["problem"]


def test_a_broken_default_keeps_no_other_preset_from_being_looked_at(folder: Folder) -> None:
    folder.add("broken", "- {id: shell, name: bassh}\n")
    (folder.root / "roster.yml").write_text(ROSTER.replace("roots", "default: broken, roots") + MODEL)
    assert folder.run("preset", "render", "minimal").code == 0
    assert folder.run("preset", "list").code == 0
    assert folder.run("preset", "render").code == 2


def test_the_shipped_presets_are_sound(folder: Folder) -> None:
    ended = folder.run_bare("preset", "check")
    assert ended.code == 0
    listed = json.loads(folder.run("preset", "list", "--json").out)["presets"]
    assert ended.out == "".join(f"ok: {one['name']} {one['digest']}\n" for one in listed)


def test_check_tells_every_problem_of_every_preset_with_its_place(folder: Folder) -> None:
    folder.add("one", "- {id: shell, name: bassh}\n- {id: b, name: bash, config: {timeoutMS: 5}}\n")
    folder.add("two", PERSONA.replace("Hello.", "'{{modle}} {{cwd}}'"))
    folder.add("three", "- {id: m, name: openai}\n")
    (folder.root / "roster.yml").write_text(
        ROSTER + "- {id: orient, name: host-section, config: {name: o, text: '{{ nope }}'}}\n"
    )
    ended = folder.run("preset", "check")
    assert ended.code == 2
    problems = [line for line in ended.err.splitlines() if line.startswith("cordisd: ")]
    assert [problem.split(": ")[1] for problem in problems] == [
        'presets/one/agent.cordis.yml:1, entry "shell"',
        'presets/one/agent.cordis.yml:2, entry "b"',
        'presets/three/agent.cordis.yml:1, entry "m"',
        'roster.yml:2, entry "orient"',
        'presets/two/agent.cordis.yml:1, entry "who"',
    ]
    assert '(did you mean "bash"?)' in problems[0] and '(did you mean "timeoutMs"?)' in problems[1]
    assert 'malformed prompt variable "{{ nope }}"' in problems[3]
    assert problems[4].endswith(
        'unknown prompt variable "{{modle}}" in section "deployment:persona"; '
        "registered variables: cwd, model, provider"
    )
    assert [line.split()[1] for line in ended.out.splitlines()] == ["minimal", "rl-minimal-v1"]


def test_a_host_that_does_not_mount_is_told_once_for_all_names(folder: Folder) -> None:
    (folder.root / "roster.yml").write_text(ROSTER + MODEL + MODEL.replace("id: model", "id: twin"))
    ended = folder.run("preset", "check", "minimal", "rl-minimal-v1")
    assert (ended.code, ended.out) == (2, "")
    [problem] = ended.err.splitlines()
    assert 'entry "twin"' in problem and "already has an adapter" in problem
    (folder.root / "roster.yml").write_text(ROSTER + "- {id: played, name: replay, config: {file: gone}}\n")
    assert 'roster.yml:2, entry "played": ' in folder.run("preset", "list").err


def test_a_locked_preset_that_is_not_frozen_any_more_is_a_problem(folder: Folder) -> None:
    folder.change("rl-minimal-v1", "name: profile", "name: profile\n  disabled: true")
    ended = folder.run("preset", "check", "rl-minimal-v1")
    assert (ended.code, ended.out) == (2, "")
    assert 'has no entry "profile" any more' in ended.err


def test_what_a_label_says_in_vain_is_a_warning(folder: Folder) -> None:
    folder.add("one", PERSONA, "nam: One\norder: first\ndescription: 5\n")
    folder.add("two", PERSONA, "name: [\n")
    folder.add("three", PERSONA, "name: Three\nname: Drei\n")
    folder.add("four", PERSONA, "- name\n")
    folder.add("five", PERSONA, "name: Five\norder: 5\n")
    ended = folder.run("preset", "check", "one", "two", "three", "four", "five")
    assert ended.code == 0
    warned = [line.removeprefix("warning: presets/") for line in ended.err.splitlines()]
    assert [warning.split(": ")[0] for warning in warned] == [
        *(f"one/preset.yml:{line}" for line in (1, 2, 3)),
        *("two/preset.yml:2", "three/preset.yml:2", "four/preset.yml:1"),
    ]
    assert 'unknown key "nam" (did you mean "name"?)' in warned[0]
    digests = {line.split()[-1] for line in ended.out.splitlines()}
    assert len(ended.out.splitlines()) == 5 and len(digests) == 1  # a label is no part of what an agent is


def test_check_takes_names_and_compositions(folder: Folder) -> None:
    (folder.root / "own.yml").write_text(MODEL + PERSONA.replace("Hello.", "'{{x}}'"))
    ended = folder.run("preset", "check", "minimal", "own.yml", "minmal")
    assert (ended.code, ended.out.count("ok: ")) == (2, 1)
    told = [line for line in ended.err.splitlines() if line.startswith("cordisd")]
    assert told[0].startswith('cordisd: own.yml:2, entry "who": unknown prompt variable "{{x}}"')
    assert told[1].startswith(
        'cordisd: minmal: agent-presets: preset "minmal" not found (did you mean "minimal"?)'
    )


def test_equal_agents_differ_in_nothing_and_share_a_digest(folder: Folder) -> None:
    ended = folder.run("preset", "diff", "minimal", "minimal.cordis.yml")
    listed = json.loads(folder.run("preset", "list", "--json").out)["presets"][0]
    assert ended == Ended(0, f"{listed['digest']}\n", "")


def test_the_diff_of_two_agents_shows_each_difference(folder: Folder) -> None:
    folder.add(
        "a", PERSONA + "- {id: b, name: bash}\n- {id: loop, name: agent, config: {parameters: {seed: 1}}}\n"
    )
    folder.add(
        "b",
        PERSONA.replace("Hello.", "'Hello, you.'")
        + "- {id: b, name: bash, config: {timeoutMs: 60000, description: Shell.}}\n"
        + "- {id: e, name: str-replace-editor}\n- {id: loop, name: agent, "
        "config: {parameters: {top_p: 0.5}}}\n",
    )
    ended = folder.run("preset", "diff", "a", "b")
    assert (ended.code, ended.err) == (1, "")
    lines = ended.out.splitlines()
    assert lines[:5] == [
        "--- a: system prompt",
        "+++ b: system prompt",
        "@@ -1 +1 @@",
        "-Hello.",
        "+Hello, you.",
    ]
    for line in (
        "--- a: tool bash: description",
        "+Shell.",
        "--- /dev/null",
        "+++ b: tool str_replace_editor: schema",
        "tools: bash -> bash, str_replace_editor",
        "bash.timeoutMs: 300000 -> 60000",
        'persona.text: "Hello." -> "Hello, you."',
        "entry str-replace-editor: only in b",
        "parameters.seed: 1 -> (absent)",
        "parameters.top_p: (absent) -> 0.5",
        "agent.parameters.seed: 1 -> (absent)",
        "contract.str_replace_editor: (absent) -> 1",
    ):
        assert line in lines, line
    assert "--- a: tool bash: schema" not in lines
    assert folder.run("preset", "diff", "a", "b") == ended


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["render", "minmal"],
            'preset "minmal" not found (did you mean "minimal"?) (available: minimal, rl-',
        ),
        (["render", "./presets/nothing"], 'preset "nothing" not found'),
        (["render", "no.yml"], "no.yml: config file not found"),
        (["render", "minimal", "--provider", "deepseek-oficial"], '(did you mean "deepseek-official"?)'),
        (["diff", "minimal", "minmal"], 'preset "minmal" not found'),
        (["list", "--composition", "hots"], "hots: config file not found; shipped compositions: demo, host"),
        (["list", "--composition", "minimal"], 'minimal has no presets: it holds no entry "presets"'),
        (["render", "x", "--composition", "minimal"], 'this composition has no entry "presets"'),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_2(
    folder: Folder, words: list[str], message: str
) -> None:
    run = folder.run_bare if "--composition" in words else folder.run
    ended = run("preset", *words)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.startswith("cordisd: ") and ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["render", "a", "--max-tokens", "0"], "--max-tokens: must be a whole number above 0, not '0'"),
        (["diff", "a"], "the following arguments are required: B"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2(
    folder: Folder, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        folder.run_bare("preset", *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
