"""`python -m cordisd` is the `cordisd` command."""

import sys

from cordisd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
