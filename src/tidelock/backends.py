"""Back ends by the schemes of their URLs: ours, and those that other packages bring.

Another package declares its own as an entry point, in the group that the registry names::

    [project.entry-points."tidelock.logs"]
    tape = "tapes.store:TapeStore"

So it is found wherever that package is installed, in Spark's Python processes and on its executors too. A module
is loaded when the first URL of its scheme is opened, and the packages of our own extras no earlier. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from tidelock.errors import PipelineError
from tidelock.extras import check_url

Backend = TypeVar("Backend")


class Registry(Generic[Backend]):
    """What opens URLs, by their schemes.

    Args:
        group: the group of entry points in which others declare theirs.
        ours: by scheme, where ours are: `package.module:name`.
    """

    def __init__(self, group: str, ours: Mapping[str, str]) -> None:
        self._group = group
        self._ours = {scheme: EntryPoint(scheme, where, group) for scheme, where in ours.items()}
        self._registered: dict[str, Callable[[str], Backend]] = {}

    def register(self, scheme: str, factory: Callable[[str], Backend]) -> None:
        """Let ``factory`` open the URLs of ``scheme`` in this process."""
        self._registered[scheme] = factory

    def schemes(self) -> list[str]:
        """All that are known, in order."""
        theirs = (point.name for point in entry_points(group=self._group))
        return sorted({*self._registered, *self._ours, *theirs})

    def find(self, url: str) -> Callable[[str], Backend] | None:
        """What opens ``url``; None if its scheme is not known.

        Raises:
            PipelineError: what it needs is not installed, or cannot be loaded.
        """
        scheme = url.partition(":")[0]
        if scheme in self._registered:
            return self._registered[scheme]
        point = self._ours.get(scheme) or next(iter(entry_points(group=self._group, name=scheme)), None)
        if point is None:
            return None
        check_url(url)
        try:
            return cast(Callable[[str], Backend], point.load())
        except (ImportError, AttributeError) as error:
            raise PipelineError(
                f"the back end for URLs of {scheme}: cannot be loaded ({point.value}: {error}): see whether the "
                "package that brings it is installed as a whole"
            ) from error
