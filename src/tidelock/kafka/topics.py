"""Topics: made with settings that drop nothing, and looked at before they are trusted."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.kafka.brokers import Brokers

_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_PAUSE = 0.02
_AS_THE_BROKERS_SAY = -1


def ensure(
    brokers: Brokers, topic: str, partitions: int, *, replication: int | None, settings: Mapping[str, str]
) -> None:
    """See that a topic exists and keeps what it is given. Idempotent.

    Raises:
        PipelineError: it exists, and may drop data; or the brokers refuse to make it.
        BackendUnavailable: no answer in time.
    """
    if not brokers.partitions(topic):
        _make(brokers, topic, partitions, replication=replication, settings={**_FOR_EVER, **settings})
    check_keeps_data(brokers, topic)


def _make(
    brokers: Brokers, topic: str, partitions: int, *, replication: int | None, settings: Mapping[str, str]
) -> None:
    copies = _AS_THE_BROKERS_SAY if replication is None else replication
    config = dict(settings)
    if copies > 1:
        config["min.insync.replicas"] = "2"  # what counts survives the loss of a broker
    wanted = NewTopic(topic, partitions, copies, config=config)

    def make(admin: AdminClient, timeout: float) -> None:
        try:
            admin.create_topics([wanted], request_timeout=timeout)[topic].result()
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    brokers.admin(make)
    deadline = time.monotonic() + brokers.location.timeout
    while not brokers.partitions(topic):  # brokers learn of it a little later
        if time.monotonic() > deadline:
            raise BackendUnavailable(f"{brokers.location.shown}: the topic {topic} was made, but does not appear")
        time.sleep(_PAUSE)


def ensure_any(brokers: Brokers, topic: str) -> None:
    """See that a topic exists; if it has to be made, it is made as the brokers make topics. Idempotent."""
    if not brokers.partitions(topic):
        _make(brokers, topic, _AS_THE_BROKERS_SAY, replication=None, settings={})


def check_keeps_data(brokers: Brokers, topic: str) -> None:
    """See that a topic keeps what it is given.

    Raises:
        PipelineError: it may drop data.
        BackendUnavailable: no answer in time.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = brokers.admin(
        lambda admin, timeout: admin.describe_configs([resource], request_timeout=timeout)[resource].result()
    )
    wrong = {name: found[name].value for name, value in _FOR_EVER.items() if found[name].value != value}
    if wrong:
        has = ", ".join(f"{name} is {value}" for name, value in sorted(wrong.items()))
        wanted = ", ".join(f"{name}={_FOR_EVER[name]}" for name in sorted(wrong))
        raise PipelineError(
            f"{brokers.location.shown}: the topic {topic} may drop data by itself ({has}): set {wanted}, or name "
            "another place"
        )


def delete_before(brokers: Brokers, topic: str, offsets: Mapping[int, int]) -> None:
    """Ask the brokers to give back the space of what lies before these offsets of partitions.

    Whether they do is not waited for: nothing depends on it, and it is asked for again later.
    """
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    if wanted:
        brokers.admin(lambda admin, timeout: admin.delete_records(wanted, request_timeout=timeout))
