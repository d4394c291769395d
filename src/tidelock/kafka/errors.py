"""What Kafka's troubles mean for us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tidelock.credentials import HINT, cause, redacted
from tidelock.errors import BackendUnavailable, PipelineError, TidelockError
from tidelock.kafka.location import KafkaLocation

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_MISTAKES = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_CONFIG,
    KafkaError._INVALID_ARG,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def is_refusal(error: KafkaError) -> bool:
    """Whether the brokers know us and do not want us, or do not know us."""
    return error.code() in _REFUSED


def is_missing_topic(error: KafkaError) -> bool:
    """Whether there is no such topic, or not yet."""
    return error.code() in _NO_TOPIC


def translate(error: KafkaError, location: KafkaLocation, trouble: KafkaError | None = None) -> TidelockError:
    """``error`` in our words; ``trouble`` is what a connection has told before, which is often the cause."""
    if trouble is not None and is_refusal(trouble):
        error = trouble
    told = _first_line(error.str())
    if is_refusal(error):
        return PipelineError(
            f"{location.shown}: the brokers refuse this user or password, or what it asks for ({told}): {HINT}"
        )
    if error.code() in _TOO_LARGE:
        return PipelineError(
            f"{location.shown}: the brokers take no record of this size ({told}): raise max.message.bytes of the "
            "topic"
        )
    if error.code() in _MISTAKES:
        return PipelineError(f"{location.shown}: the brokers refuse this ({told})")
    cause = f"; {_first_line(trouble.str())}" if trouble is not None else ""
    return BackendUnavailable(
        f"{location.shown}: the brokers do not answer, or cannot do this now ({told}{cause}). Start them, or see "
        "whether they can be reached from here"
    )


@contextmanager
def translated(location: KafkaLocation) -> Iterator[None]:
    """Say in our words what Kafka raises inside.

    Raises:
        PipelineError: the brokers refuse us, or what we ask for.
        BackendUnavailable: they do not answer in time, or cannot do it now.
    """
    try:
        yield
    except KafkaException as failure:
        raise translate(failure.args[0], location) from cause(failure)


def _first_line(text: str) -> str:
    return redacted(text).strip().partition("\n")[0].rstrip(":. ")
