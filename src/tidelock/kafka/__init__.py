"""Kafka brokers: how a URL names them, and what their troubles mean. Logs are kept there, and topics are read."""

from importlib.util import find_spec

from tidelock.errors import PipelineError


def check_installed() -> None:
    """See that the client for Kafka is there.

    Raises:
        PipelineError: it is not.
    """
    if find_spec("confluent_kafka") is None:
        raise PipelineError("Kafka needs the package confluent-kafka: install tidelock[kafka]")
