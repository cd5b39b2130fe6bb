"""`cordisd schema`: the JSON Schema of a composition, of a patch file or of a `preset.yml`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd schema`."""
    parser.add_argument(
        "of",
        nargs="?",
        choices=("composition", "patches", "preset"),
        default="composition",
        help="of what: a composition (the default), a --patch file, or a preset.yml",
    )


def run(args: Namespace) -> int:
    """Print the schema as JSON; plug-ins that could not be described are named on stderr."""
    from cordisd.cli.output import print_out
    from cordisd.kernel.schema import composition_schema, patches_schema, preset_schema

    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with redirect_stdout(sys.stderr):  # whatever a plug-in prints while it is imported
        match args.of:
            case "composition":
                schema = composition_schema(warn)
            case "patches":
                schema = patches_schema(warn)
            case _:
                schema = preset_schema()
    print_out(json.dumps(schema, indent=2))
    return 0
