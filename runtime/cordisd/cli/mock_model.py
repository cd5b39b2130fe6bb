"""`cordisd mock-model`: a script or a recording, served over HTTP as an OpenAI-compatible model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cordisd.mock import Script

HELP: Final = """\
Prints the base URL on standard output when it is ready, and serves until SIGINT or SIGTERM:
POST /v1/chat/completions, streamed or not, and GET /v1/models; /v1 may be left out.

A script is a YAML list of replies, taken in order:

    - {text: [Hel, lo], reasoning: They greet me., finish: stop}    # a list: a delta for each piece
    - calls: [{name: bash, arguments: {command: ls}}, {id: c2, name: bash, arguments: '{"comm'}]
      usage: {prompt_tokens: 20, completion_tokens: 4, total_tokens: 24}
    - error: {status: 429, message: slow down, headers: {Retry-After: "1"}}   # or html: a page
    - text: Late and in small pieces.
      faults: {latency: 0.5, split-bytes: true, cut-rst: 0.8}
    - tokens: [{text: Hi, id: 13, logprob: -0.1}]         # sent on logprobs and return_token_ids
    - stream: [{event: {choices: []}}, {text: ": ping\\n\\n"}, {pause: 0.1}, {cut: rst}]  # or done, hex, hang
    - {match: {user: weather}, repeat: always, text: Sunny}   # regular expressions on the last user message,
    - {match: {tool: "exit code: [1-9]", headers: {x-job: a}}, text: It failed.}  # tool result, system, model
    - {default: true, text: Anything else}

A recording, made by `cordisd record`, answers each request that is the recorded one, and refuses others.

--faults NAME=PROBABILITY injects faults at random, the same ones again for the same seed and conversations;
a request that failed by chance gets its reply when it is sent again.

Faults, each with its usual parameter:

"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd mock-model`."""
    from cordisd.mock import FAULTS

    rows = [
        f"  {name}{'' if fault.parameter is None else f': {fault.parameter}'}".ljust(28) + fault.summary
        for name, fault in FAULTS.items()
    ]
    parser.formatter_class, parser.epilog = RawDescriptionHelpFormatter, HELP + "\n".join(rows)
    parser.add_argument(
        "script", metavar="SCRIPT", type=Path, help="a script file, a recording (.jsonl), or a folder of them"
    )
    parser.add_argument("--cwd", default=".", help="of a recording: where its client works (default: here)")
    parser.add_argument("--pace", action="store_true", help="of a recording: send chunks when they came")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--seed", type=int, help="of everything random (default: a new one, which is told)")
    parser.add_argument(
        "--faults",
        metavar="NAME=PROBABILITY",
        type=_probability,
        action="append",
        default=[],
        help="inject a fault at random; repeatable",
    )
    parser.add_argument("--api-key", help="answer 401 to requests without this key")
    parser.add_argument(
        "--model", action="append", help="a model to list; repeatable (default: mock); any is served"
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="write the seed, then each request and its faults, as JSON lines",
    )


def run(args: Namespace) -> int:
    """Serve until a signal comes; 2 when the script or the address is no good, 1 when the log fails."""
    from cordisd.errors import CompositionError
    from cordisd.mock.script_file import ScriptError

    try:
        return asyncio.run(_serve(args, _script(args)))
    except (ScriptError, CompositionError) as error:
        for problem in error.problems:
            print(f"cordisd: {problem}", file=sys.stderr)
        return 2


def _script(args: Namespace) -> Script:
    """What is served: the replies of a script file, or of the recordings in a file or a folder."""
    from cordisd.mock.script_file import read_playlist

    path: Path = args.script
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if path.suffix != ".jsonl" and not path.is_dir():
        return read_playlist(path)
    from cordisd.replay.recording import read_recording
    from cordisd.replay.served import replies_of

    return replies_of([read_recording(one) for one in paths], os.path.abspath(args.cwd), paced=args.pace)


async def _serve(args: Namespace, script: Script) -> int:
    from cordisd.cli.output import print_out
    from cordisd.mock import MockModel

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        log = _Log(args.log, ended)
    except OSError as error:
        print(f"cordisd: {args.log} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    mock = MockModel(
        script,
        host=args.host,
        port=args.port,
        api_key=args.api_key,
        seed=args.seed,
        faults=dict(args.faults),
        models=args.model or ("mock",),
        log=log.write,
        keeps_requests=False,  # it may serve for days
    )
    async with AsyncExitStack() as held:
        held.callback(log.close)
        try:
            await held.enter_async_context(mock)
        except OSError as error:
            where = f"{args.host}:{args.port}"
            print(f"cordisd: {where} cannot be listened on: {error.strerror or error}", file=sys.stderr)
            return 2
        log.write({"script": str(args.script), "seed": mock.seed, "faults": dict(args.faults)})
        print(f"cordisd: serving {args.script}, seed {mock.seed}", file=sys.stderr)
        print_out(f"{mock.url}/v1")
        await ended.wait()
    return int(log.failed)


class _Log:
    """The log file, if there is one; when it cannot be written any more, `ended` is set."""

    def __init__(self, path: Path | None, ended: asyncio.Event) -> None:
        self._file: IO[bytes] | None = None if path is None else path.open("wb", buffering=0)
        self._ended = ended
        self.failed = False

    def write(self, record: dict[str, Any]) -> None:
        """Write a line, now."""
        if self._file is None or self.failed:
            return
        try:
            self._file.write(json.dumps(record).encode() + b"\n")
        except OSError as error:
            self.failed = True
            print(f"cordisd: {self._file.name} cannot be written: {error.strerror}", file=sys.stderr)
            self._ended.set()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) < 65_536:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is no port")


def _probability(text: str) -> tuple[str, float]:
    from cordisd.errors import nearest
    from cordisd.mock import FAULTS

    name, _, written = text.partition("=")
    if name not in FAULTS:
        raise ArgumentTypeError(f'unknown fault "{name}"{nearest(name, FAULTS)}; --help lists all')
    try:
        probability = float(written)
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:
        raise ArgumentTypeError(f"{text!r}: a probability is a number from 0 to 1")
    return name, probability
