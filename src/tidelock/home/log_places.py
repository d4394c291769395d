"""Where the logs of a pipeline are kept: all below one URL, or those of some nodes elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.log.store import join_url, open_store, parent_url
from tidelock.topology.names import EVERY, suggestion
from tidelock.urls import located

LogsLike = str | Mapping[str, str] | None
"""A URL below which all logs are kept, or one for each node, with `*` for the others."""


@dataclass(frozen=True)
class LogPlaces:
    """Whom to ask for the URL of a log: what was asked for, then what an earlier run did, then the default.

    >>> places = LogPlaces.of({"words": "redis://host/0/job?replicas=1", "*": "file:/data"}, "file:/home/logs")
    >>> places.url("words"), places.url("counts")
    ('redis://host/0/job/words?replicas=1', 'file:/data/counts')
    """

    default: str
    """The URL below which logs are kept that nobody said anything about."""
    asked: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    """The URLs of logs that exist."""

    @classmethod
    def of(cls, logs: LogsLike, default: str) -> LogPlaces:
        """The places that a user asks for; credentials in them are kept in this process's memory.

        Raises:
            PipelineError: a directory's URL has something behind the path, which nobody would look at.
        """
        asked = {EVERY: logs} if isinstance(logs, str) else dict(logs or {})
        return cls(default, {node: _asked(url) for node, url in asked.items() if url})

    def url(self, node: str) -> str:
        """The URL of the log of ``node``."""
        if self.is_asked(node):
            return join_url(self.asked.get(node) or self.asked[EVERY], node)
        return self.recorded.get(node) or join_url(self.default, node)

    def is_asked(self, node: str) -> bool:
        """Whether a place was asked for the log of ``node``."""
        return node in self.asked or EVERY in self.asked

    def as_recorded(self, urls: Mapping[str, str]) -> LogPlaces:
        """These places, with the logs of an earlier run where they are unless another place was asked for.

        A log that is new is kept where all the others are; if they are in several places, at the default.
        """
        parents = {parent_url(url) for url in urls.values()}
        default = next(iter(parents)) if len(parents) == 1 else self.default
        return replace(self, default=default, recorded=dict(urls))

    def check_names(self, nodes: Collection[str]) -> None:
        """See that every node for which a place was asked is there.

        Raises:
            PipelineError: it is not one of ``nodes``.
        """
        for node in sorted(self.asked.keys() - {EVERY} - set(nodes)):
            raise PipelineError(
                f"a place is given for the log of {node}, but there is no source or operator of that name: "
                f"{suggestion(node, nodes)}"
            )

    def check_urls(self) -> None:
        """See that a log could be at every place that was asked for; nothing is opened.

        Raises:
            PipelineError: a URL is malformed, its scheme unknown, or the package for it not installed.
        """
        for url in self.asked.values():
            open_store(join_url(url, "log"))

    def check(self, nodes: Collection[str], written: Collection[str]) -> None:
        """See that every node for which a place was asked has a log.

        Raises:
            PipelineError: it is not one of ``nodes``, or not one of those whose log is ``written``.
        """
        self.check_names(nodes)
        for node in sorted(self.asked.keys() - {EVERY} - set(written)):
            raise PipelineError(
                f"a place is given for the log of {node}, but under this plan it has none: the logs are those of "
                f"{', '.join(written) or 'nobody'}"
            )


def _asked(url: str) -> str:
    place = located(taken(url))
    if place.startswith("file:") and ("#" in place or "?" in place):
        raise PipelineError(
            f"{place} is not a directory's URL: give the path alone, or write %23 for # and %3F for ?"
        )
    return place
