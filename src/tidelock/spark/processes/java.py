"""Java in a process group of its own.

PySpark starts Java in the group of the driver. What a terminal, `timeout` or a service manager sends to that whole
group would reach Java too, and first: it would end under a driver that has an epoch to finish. In a group of its
own it hears of nothing but the end of the driver, however that came: it then reads the end of its standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Is set where spark-submit has started Python, and not the other way round."""
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java of this process for a session with these settings. Nothing happens if there is one already.

    Java that spark-submit has started is older than this process, and stays in the group in which it is.
    """
    if SparkContext._gateway is not None or any(name in os.environ for name in (GATEWAY, *_REMOTE)):
        return
    conf = SparkConf()
    conf.setAll(list(settings.items()))
    gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
