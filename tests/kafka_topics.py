"""A topic of somebody who knows nothing of Tidelock: written to, shortened, deleted and made again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka_servers import KafkaServer
from tests.waiting import eventually


class Topic:
    """A topic with a name of its own."""

    def __init__(self, server: KafkaServer, partitions: int = 1) -> None:
        self.name = uuid.uuid4().hex
        self.servers = server.address
        self._admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
        self.make(partitions)

    def make(self, partitions: int = 1) -> None:
        """Make it; one of the same name may just be going."""

        def made() -> bool:
            try:
                self._admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(30)
            except KafkaException:
                return False
            return True

        eventually(made, f"the topic {self.name} can be made")

    def write(self, numbers: Iterable[int], partition: int = 0) -> None:
        """Records with these numbers, and wait until the broker has them."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for n in numbers:
            producer.produce(self.name, json.dumps({"n": n}), partition=partition)
        assert producer.flush(30) == 0

    def drop_before(self, offset: int, partition: int = 0) -> None:
        """Delete the oldest records, as retention does."""
        place = TopicPartition(self.name, partition, offset)
        self._admin.delete_records([place])[place].result(30)

    def delete(self) -> None:
        """Delete the topic."""
        self._admin.delete_topics([self.name])[self.name].result(30)

    def make_again(self, partitions: int = 1) -> None:
        """Delete it and make it again: another topic of the same name."""
        self.delete()
        self.make(partitions)
