"""`python -m tidelock`: the same as the command `tidelock`."""

import sys

from tidelock.cli import main

if __name__ == "__main__":
    sys.exit(main())
