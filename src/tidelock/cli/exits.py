"""Exit codes, and which failure becomes which: the only place that decides it.

0    it was done, and the answer is good
1    it was done, and the answer is bad: a log is damaged, the demo's counts differ
2    it could not be done: a wrong option, no such log, a server that does not answer
70   a defect of Tidelock; the stack trace is for its developers
130  interrupted from the keyboard: left before anything ran, or at once
143  asked to end by SIGTERM before anything ran; a run that stops as it is asked to has done what it should: 0
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from tidelock.credentials import redacted
from tidelock.errors import InternalError, TidelockError

GOOD = 0
BAD = 1
IMPOSSIBLE = 2
DEFECT = 70
INTERRUPTED = 130


def exit_code(run: Callable[[], int]) -> int:
    """What ``run`` answers; a failure is told on standard error, without a stack trace unless it is ours."""
    try:
        return run()
    except InternalError as error:
        print(redacted(traceback.format_exc()), end="", file=sys.stderr)
        return _tell(f"a defect of Tidelock, please report it: {error}", DEFECT)
    except TidelockError as error:
        return _tell(str(error), IMPOSSIBLE)
    except OSError as error:
        return _tell(str(error), IMPOSSIBLE)
    except KeyboardInterrupt:
        return _tell("interrupted", INTERRUPTED)


def _tell(message: str, code: int) -> int:
    print(f"tidelock: {redacted(message)}", file=sys.stderr)
    return code
