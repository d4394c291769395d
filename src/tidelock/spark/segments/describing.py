"""What the nodes of a pipeline are, found out before anything runs.

Every operator is built once on stand-ins for its inputs: streams with the right columns and no content. So what is
seen of it is its own doing, and a mistake in it is told by its name. The functions of a pipeline are therefore
called more than once; they have to build DataFrames and do nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelock.cache.operator import StateShape
from tidelock.errors import PipelineError, SchemaMismatch, TidelockError
from tidelock.fingerprint.nodes import Layout, PlanPrint
from tidelock.spark.plans.plans import examine
from tidelock.spark.plans.prints import plan_print, stand_in
from tidelock.spark.schema import check_fits, describe
from tidelock.spark.segments.keyed import Building, building
from tidelock.spark.stories.stories import spark_error
from tidelock.spark.stories.tracebacks import users_frame
from tidelock.topology import Kind, Topology, TopologyNode, Traits

Functions = Mapping[str, Callable[..., Any]]
"""The user's functions, by the names of their nodes."""

_MODES = {"append": "Append", "update": "Update", "complete": "Complete"}


@dataclass(frozen=True)
class Described:
    """What Spark's analysis says of a source or an operator."""

    schema: StructType
    traits: Traits
    event_time: bool
    """Its rows come with a watermark, declared by it or by something before it."""
    state: StateShape | None = None
    """What it keeps in a cache, if it does."""
    plan: PlanPrint | None = None
    """The fingerprint of its plan; None for a source."""
    layouts: tuple[Layout, ...] = ()
    """The columns of its state, wherever that is."""
    settings: object = None
    """How it changes the state that is in a cache."""


def describe_nodes(spark: SparkSession, topology: Topology, functions: Functions) -> dict[str, Described]:
    """Describe every source and operator of ``topology``.

    Raises:
        PipelineError: a function fails or does not return a streaming DataFrame, Spark cannot run the operator in
            its output mode, or a feedback's schema is not that of its operator.
    """
    found: dict[str, Described] = {}
    for node in topology.nodes:
        if node.kind is not Kind.SINK:
            found[node.name] = _describe(spark, topology, node, functions[node.name], found)
    return found


def _describe(
    spark: SparkSession,
    topology: Topology,
    node: TopologyNode,
    function: Callable[..., Any],
    found: Mapping[str, Described],
) -> Described:
    inputs = {name: stand_in(spark, _schema(topology, node, name, found), name) for name in node.inputs}
    with building(None) as made:
        stream = build(spark, node, function, inputs)
    traits = _with_cache(examine(stream, tuple(inputs)), made)
    if node.kind is Kind.OPERATOR:
        _check_mode(stream, node)
    _check_storable(stream, node)
    if node.name in topology.feedback:
        _check_feedback(stream, node, topology.feedback[node.name])
    arriving = [name for name in topology.forward_inputs(node.name) if found[name].event_time]
    event_time = not traits.silenced.issuperset(arriving) or (traits.watermark and not traits.mute)
    if node.kind is Kind.SOURCE:
        return Described(stream.schema, traits, event_time)
    plan, layouts = plan_print(stream, filled=made.shape is not None and not made.calls_function)
    layouts += () if made.shape is None else (_cached_layout(made.shape),)
    return Described(stream.schema, traits, event_time, made.shape, plan, layouts, made.settings)


def _cached_layout(shape: StateShape) -> Layout:
    columns = [(field.name, str(field.type)) for schema in (shape.keys, shape.values) for field in schema]
    ends = [] if shape.expiry is None else [("its end", f"{shape.expiry.after} µs after {shape.expiry.column}")]
    return Layout("tidelock.keyed", (*columns, *ends), by_name=True)


def _with_cache(traits: Traits, made: Building) -> Traits:
    """The traits of an operator, which Spark's plan does not show as far as its state is in a cache."""
    if made.shape is None:
        return traits
    return replace(
        traits,
        stateful=True,
        cached=True,
        event_time=traits.event_time or made.shape.expiry is not None,
        function=traits.function or made.calls_function,
    )


def build(
    spark: SparkSession, node: TopologyNode, function: Callable[..., Any], inputs: Mapping[str, DataFrame]
) -> DataFrame:
    """Call the function of a source or operator; what it returns is checked.

    Raises:
        PipelineError: it raises something, or returns no streaming DataFrame.
    """
    what = f"{node.kind.value} {node.name}"
    given: dict[str, Any] = dict(inputs)
    if node.kind is Kind.SOURCE or "spark" in inspect.signature(function).parameters:
        given["spark"] = spark
    try:
        stream = function(**given)
    except TidelockError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(f"{what} cannot be built: {spark_error(error)}{_line(error)}") from error
    except (Exception, SystemExit) as error:  # the user's code: anything can come out of it
        raise PipelineError(f"{what} raised {type(error).__name__}: {_first_line(error)}{_line(error)}") from error
    if not isinstance(stream, DataFrame):
        returned = "nothing" if stream is None else f"a {type(stream).__name__}"
        raise PipelineError(f"{what} returned {returned}: it has to return a streaming DataFrame")
    if not stream.isStreaming:
        raise PipelineError(
            f"{what} returned a batch DataFrame: it has to return a streaming one, made with spark.readStream"
            if node.kind is Kind.SOURCE
            else f"{what} returned a batch DataFrame: it has to return a stream that comes from its inputs"
        )
    return stream


def _schema(topology: Topology, node: TopologyNode, name: str, found: Mapping[str, Described]) -> StructType:
    if (name, node.name) in topology.back_edges:
        return _feedback_schema(name, topology.feedback[name])
    return found[name].schema


def _feedback_schema(operator: str, declared: str) -> StructType:
    """The schema that a feedback was declared with.

    Raises:
        PipelineError: it is no schema.
    """
    try:
        return StructType.fromDDL(declared)  # type: ignore[return-value]
    except PySparkException as error:
        raise PipelineError(
            f"the feedback of {operator} has the schema {declared!r}, which Spark cannot read: write it like "
            f"'id long, score double' ({_first_line(error)})"
        ) from error


def _check_mode(stream: DataFrame, node: TopologyNode) -> None:
    refusal = _refusal(stream, node.mode)
    if refusal is None:
        return
    others = [f"`mode={mode!r}`" for mode in _MODES if mode != node.mode and _refusal(stream, mode) is None]
    hint = f". With {' or '.join(others)} in its declaration it can" if others else ""
    told = _first_line(refusal).rstrip(".")
    raise PipelineError(f"operator {node.name} cannot run with mode={node.mode!r}: {told}{hint}") from refusal


def _refusal(stream: DataFrame, mode: str) -> PySparkException | None:
    """Why Spark does not run a stream with this output mode; None if it does."""
    frame: Any = stream
    jvm: Any = stream.sparkSession.sparkContext._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    java_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, _MODES[mode])()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), java_mode)
    except PySparkException as refusal:
        return refusal
    return None


def _check_storable(stream: DataFrame, node: TopologyNode) -> None:
    try:
        describe(stream.schema)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{node.kind.value} {node.name}: {error}") from error


def _check_feedback(stream: DataFrame, node: TopologyNode, declared: str) -> None:
    schema = _feedback_schema(node.name, declared)
    try:
        check_fits(stream.schema, describe(schema), f"the feedback of {node.name}")
    except SchemaMismatch as error:
        raise PipelineError(
            f"the feedback of {node.name} was declared with the schema {declared!r}, but the operator has other "
            f"columns: {error}"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _line(error: BaseException) -> str:
    """Where in the user's code it was raised."""
    frame = users_frame(error)
    return f" ({frame})" if frame else ""
