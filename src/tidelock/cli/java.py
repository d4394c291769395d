"""Whether Spark has the Java that it needs."""

from __future__ import annotations

import os
import shutil

from tidelock.errors import PipelineError


def check_java() -> None:
    """Raise if there is no Java.

    Raises:
        PipelineError: Java is neither on the path nor named by the environment.
    """
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise PipelineError("Spark needs Java 17 or newer: install one, or set JAVA_HOME to where it is")
