"""Exit codes, and which failure becomes which: the only place that decides it.

0    it was done, and the answer is good
1    it was done, and the answer is bad: a log is damaged, the demo's counts differ
2    it could not be done: a wrong option, no such log, a server that does not answer
70   a defect of Tidelock; the stack trace is for its developers
130  interrupted from the keyboard
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

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
        traceback.print_exc()
        return _tell(f"a defect of Tidelock, please report it: {error}", DEFECT)
    except TidelockError as error:
        return _tell(str(error), IMPOSSIBLE)
    except OSError as error:
        return _tell(str(error), IMPOSSIBLE)
    except KeyboardInterrupt:
        return _tell("interrupted", INTERRUPTED)


def _tell(message: str, code: int) -> int:
    print(f"tidelock: {message}", file=sys.stderr)
    return code
