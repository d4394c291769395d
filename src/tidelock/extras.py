"""What is installed only if it is asked for: which modules it brings, and what to say when they are not there.

Nothing of an extra is imported before it is needed. A missing one is told with the command that installs it, and
where a URL tells that it will be needed, that is found out from the URL alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from tidelock.errors import PipelineError

__all__ = ["EXTRAS", "check_url", "check_urls", "missing", "need"]

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "redis": ("redis",),
    "zookeeper": ("kazoo",),
    "kafka": ("confluent_kafka", "fastavro"),
}
"""The modules of every extra."""

_SCHEMES: Mapping[str, tuple[str, str]] = {
    "redis": ("redis", "Redis"),
    "rediss": ("redis", "Redis"),
    "kafka": ("kafka", "Kafka"),
    "kafkas": ("kafka", "Kafka"),
    "zookeeper": ("zookeeper", "ZooKeeper"),
}


def missing(extra: str) -> str | None:
    """The first module of ``extra`` that is not installed; None if all are."""
    return next((module for module in EXTRAS[extra] if not _is_there(module)), None)


def need(extra: str, what: str) -> None:
    """See that ``extra`` is installed, which ``what`` needs.

    Raises:
        PipelineError: it is not; the message has the command that installs it.
    """
    module = missing(extra)
    if module is not None:
        raise PipelineError(
            f"{what} needs the Python package {module.replace('_', '-')}, which is not installed here: "
            f"pip install 'tidelock[{extra}]'"
        )


def check_url(url: str | None) -> None:
    """See that what a URL of this scheme needs is installed; other schemes, paths and None need nothing.

    Raises:
        PipelineError: it is not.
    """
    scheme = (url or "").partition(":")[0]
    if scheme in _SCHEMES:
        extra, name = _SCHEMES[scheme]
        need(extra, f"a URL of {name} ({scheme}:)")


def check_urls(urls: Iterable[str | None]) -> None:
    """The same for several.

    Raises:
        PipelineError: an extra that one of them needs is not installed.
    """
    for url in urls:
        check_url(url)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
