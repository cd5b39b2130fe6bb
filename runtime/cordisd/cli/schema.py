"""`cordisd schema`: the JSON Schema of a composition, of a patch file or of a `preset.yml`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import redirect_stdout
from typing import Final

HELP: Final = """\
VS Code with its YAML extension completes and checks compositions after

    cordisd schema > cordis.schema.json

with these settings (a !!js scalar reaches the extension without its tag, so any value may also be a text
that looks like an expression):

    "yaml.schemas": {"./cordis.schema.json": "*.cordis.yml"},
    "yaml.customTags": ["tag:yaml.org,2002:js scalar"]
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd schema`."""
    parser.formatter_class, parser.epilog = RawDescriptionHelpFormatter, HELP
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
