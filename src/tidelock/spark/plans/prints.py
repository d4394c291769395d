"""The plan of an operator as a fingerprint, and the columns of its state. Nothing is run.

The analysed plan is taken without the columns that nobody uses and without views and aliases of tables, so that
a column more in an input does not matter to an operator that does not look at it. It is written down as the JSON
that Spark makes of it, without what is new in every run or does not matter: the ids of expressions (numbered as
they come; columns of inputs by their names), the names of columns on the way, nullability, metadata, numbers of
partitions and random seeds. Inputs stand there by their names, and literals that are arrays by what is in them.

Where Spark's JSON has nothing to say (the function of a UDF, the rows of a table), the plan has a hole. The
functions themselves are handed out beside it, as they are sent to Spark's workers: the operator's code may know no
more of them than the name that they are registered by.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.core.broadcast import Broadcast, _broadcastRegistry
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelock.fingerprint.contents import unpickled
from tidelock.fingerprint.nodes import Layout, PlanPrint
from tidelock.fingerprint.source import digest
from tidelock.spark.plans.walks import analysed, children, keeps_state, name_of, nodes

INPUT = "#input"
"""The column that names what a stand-in stands for."""
_CALLS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
"""The expressions that call a Python function."""
_HIDDEN = "'…'"
_MANY = 2**31 - 1
_DROPPED = {
    *("metadata", "nullable", "qualifier", "nonInheritableMetadataKeys", "explicitMetadata", "jvmId", "nodeId"),
    *("optNumPartitions", "numPartitions", "seed"),
}
_EMPTY_ANYWAY = {
    *("evalMode", "evalContext", "hint", "hints", "dedupSpec", "delay"),
    *("Literal.value", "NamedLambdaVariable.value"),
}
"""Fields that Spark's JSON leaves empty with nothing of the user's in them; delays and `_TRIES` are added."""
_RANDOM = {"Rand", "Randn", "Uuid", "Shuffle", "Uniform", "RandStr"}
_IDS = re.compile(r"#\d+L?(-T\d+ms)?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}, ")
_RULES = (
    "analysis.EliminateView",
    "analysis.EliminateSubqueryAliases",
    "optimizer.ColumnPruning",
    "optimizer.RemoveNoopOperators",
)
_TRIES = re.compile(r"\b(?:try_)?(?:cast|sum|avg)\(")
"""What fails and what gives null are the same class of Spark's, of which the JSON does not say which it is."""
_ADDRESS = re.compile(r'"value":"[^"]*@[0-9a-f]+[^"]*"')
_UTC = ("Etc/UTC", "GMT", "Z")
_ROUNDS = 10
_REFUSALS = (PySparkException, Py4JError)


def stand_in(spark: SparkSession, schema: StructType, name: str) -> DataFrame:
    """A stream with these columns and no content, which a plan knows as the input ``name``."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return ticks.select(F.lit(name).alias(INPUT)).select([_nothing(field) for field in schema])


def _nothing(field: Any) -> Column:
    value = F.when(F.col(f"`{INPUT}`").isNull(), F.lit(None)).cast(field.dataType)
    return value.alias(field.name, metadata=field.metadata)  # the delay of a watermark is in there


def plan_print(stream: DataFrame, *, filled: int = 0) -> tuple[PlanPrint, tuple[Layout, ...]]:
    """The fingerprint of a stream that was built on stand-ins, and the columns of the state that it keeps.

    ``filled`` is how many Python functions of the plan are known otherwise.
    """
    plan = _pruned(stream)
    found = [*nodes(plan)]
    layouts = tuple(_layout(node) for node in found if keeps_state(node))
    shown = tuple(_shown(plan))
    names = [field.name for field in stream.schema]
    try:
        text = str(plan.toJSON())
        literals = _literals(found) if _ADDRESS.search(text) else {}
    except _REFUSALS:  # Spark cannot write every expression; then the code has to decide, too
        told = digest(repr([names, *map(_plain, shown)]))
        return PlanPrint(_version(), told, (), whole=False, functions=tuple(_functions(found))), layouts
    delays = [str(one.delay()) for one in found if name_of(one) == "EventTimeWatermark"]
    written = _Writing(json.loads(text), delays, literals)
    tries = [found for line in shown for found in _TRIES.findall(line)]
    functions = tuple(_functions(found)) if any(kind in text for kind in _CALLS) else ()
    text = json.dumps([names, written.plan(), tries], sort_keys=True)
    unknown = len(written.holes) - min(filled, written.holes.count("PythonUDF.func"))
    return PlanPrint(_version(), digest(text), (*map(written.hidden, shown),), not unknown, functions), layouts


def _version() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])


def _pruned(stream: DataFrame) -> Any:
    catalyst: Any = stream.sparkSession.sparkContext._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    plan = analysed(stream)
    for _ in range(_ROUNDS):
        before = plan
        for path in _RULES:
            package, rule = path.split(".")
            plan = getattr(getattr(catalyst, package), rule).apply(plan)
        if plan.fastEquals(before):
            break
    return plan


def _literals(plan: list[Any]) -> dict[str, tuple[str, str]]:
    """The literals of a plan by how its JSON writes them: exactly, and as the plan shows them."""
    found: dict[str, tuple[str, str]] = {}
    for node in plan:
        expressions = node.expressions()
        for place in range(expressions.size()):
            for one in nodes(expressions.apply(place)):
                if str(one.getClass().getSimpleName()) == "Literal":
                    found[str(json.loads(one.toJSON())[0]["value"])] = (str(one.sql()), str(one.toString()))
    return found


# -- the functions


def _functions(plan: list[Any]) -> Iterator[tuple[str, Any]]:
    """The Python functions that a plan calls, from top to bottom; those that cannot be read are left out."""
    for node in plan:
        for call in _calls(node):
            with contextlib.suppress(Exception):  # it is the user's to say how what it captures is read
                yield str(call.name()), _function(call)
        subqueries = node.subqueries()
        for place in range(subqueries.size()):
            yield from _functions([*nodes(subqueries.apply(place))])


def _calls(node: Any) -> Iterator[Any]:
    expressions = node.expressions()
    for place in range(expressions.size()):
        for one in nodes(expressions.apply(place)):
            if str(one.getClass().getSimpleName()) in _CALLS:
                yield one


def _function(call: Any) -> Any:
    """The function that an expression calls, or the class or the object of the user that has its methods."""
    with _broadcasts(call.func().broadcastVars()):
        sent = unpickled(call)
    function = sent[0] if isinstance(sent, tuple) else sent
    return getattr(getattr(function, "__self__", None), "_stateful_processor", function)


@contextmanager
def _broadcasts(sent: Any) -> Iterator[None]:
    """Let broadcasts be read that a function captures, as in a worker."""
    files = {one.id(): str(one.value().path()) for one in sent}
    missing = files.keys() - _broadcastRegistry.keys()
    for number in missing:
        _broadcastRegistry[number] = Broadcast(path=files[number])
    try:
        yield
    finally:
        for number in missing:
            del _broadcastRegistry[number]


# -- the JSON


@dataclass
class _Writing:
    """A plan's JSON without what does not count."""

    elements: list[dict[str, Any]]
    delays: list[str]
    literals: dict[str, tuple[str, str]]
    """Those that Spark's JSON writes as addresses in memory, exactly and as plans show them."""

    def __post_init__(self) -> None:
        self.holes: list[str] = []
        self._texts: set[str] = set()
        self._labels: dict[int, str] = {}
        self._numbers = itertools.count()
        self._inputs = {place: name for place, name in enumerate(map(_input, self.elements)) if name}
        for number, (place, name) in enumerate(self._inputs.items()):
            for column in self.elements[place - 1].get("projectList", []):
                self._labels.setdefault(column[0]["exprId"]["id"], f"{name} {number} {column[0]['name']}")

    def plan(self) -> list[Any]:
        delays = iter(self.delays)
        written: list[Any] = []
        for place, element in enumerate(self.elements):
            if place in self._inputs:
                written.append({"input": self._inputs[place]})
            elif place + 1 not in self._inputs and place - 1 not in self._inputs:
                delay = {"delay": next(delays)} if _class(element) == "EventTimeWatermark" else {}
                written.append({**self._written(element), **delay})
        return written

    def _written(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._written(one) for one in _without_zones(self._without_seeds(value))]
        if not isinstance(value, dict):
            return value
        if "exprId" in value and _class(value) == "AttributeReference":
            return {"column": self._label(value["exprId"]), "type": self._written(value["dataType"])}
        if str(value.get("product-class", "")).endswith(".ExprId"):
            return self._label(value)
        if _class(value) == "Literal" and value["value"] is not None:
            value = self._literal(value)
        return {key: self._field(_class(value), key, one) for key, one in value.items() if _counts(value, key)}

    def _literal(self, value: dict[str, Any]) -> dict[str, Any]:
        text, kind = str(value["value"]), value["dataType"]
        if kind == "string":
            self._texts |= {text} - {""}
        if isinstance(kind, str) and kind != "binary":
            return value
        exact, shown = self.literals.get(text, (None, text))
        self._texts.add(shown)
        self.holes += ["Literal.value"] * (exact is None)
        return {**value, "value": exact}

    def _without_seeds(self, values: list[Any]) -> list[Any]:
        """Expressions without the seed that stands behind each of those that are random."""
        random = [isinstance(one, dict) and _class(one) in _RANDOM for one in values]
        self.holes += ["random"] * sum(random)
        seeds = [place + 1 for place, is_random in enumerate(random) if is_random]
        return ["seed" if p in seeds and _class(one) == "Literal" else one for p, one in enumerate(values)]

    def _field(self, kind: str, key: str, value: Any) -> Any:
        if value is None and not {key, f"{kind}.{key}"} & _EMPTY_ANYWAY:
            self.holes.append(f"{kind}.{key}")
        return "UTC" if key == "timeZoneId" and value in _UTC else self._written(value)

    def hidden(self, line: str) -> str:
        """A line without the texts of the plan: one of them may be a password."""
        for text in sorted(self._texts, key=len, reverse=True):
            line = re.sub(rf"(?<![\w#.]){re.escape(text)}(?![\w#(])", _HIDDEN, line)
        return _plain(line)

    def _label(self, identity: dict[str, Any]) -> str:
        if identity["id"] not in self._labels:
            self._labels[identity["id"]] = str(next(self._numbers))
        return self._labels[identity["id"]]


def _without_zones(values: list[Any]) -> list[Any]:
    """Expressions without the time zone of casts that need none: Spark notes it in all of them."""
    return [
        {key: part for key, part in one.items() if key != "timeZoneId"}
        if isinstance(one, dict) and _class(one) == "Cast" and not _needs_zone(one, behind)
        else one
        for one, behind in zip(values, [*values[1:], None], strict=False)
    ]


def _needs_zone(cast: dict[str, Any], behind: Any) -> bool:
    """Whether a cast may depend on the time zone; ``behind`` is what it casts."""
    if cast["dataType"] != "string":
        return _is_time(cast["dataType"])
    known = isinstance(behind, dict) and _class(behind) in ("AttributeReference", "Literal")
    return not known or _is_time(behind["dataType"])


def _is_time(kind: Any) -> bool:
    """Whether a type is one of times, or may contain some."""
    return not isinstance(kind, str) or kind.startswith(("timestamp", "date"))


def _counts(fields: dict[str, Any], key: str) -> bool:
    return key not in _DROPPED and not (key == "name" and _class(fields) in ("Alias", "NamedLambdaVariable"))


def _input(element: dict[str, Any]) -> str | None:
    """The input that a projection stands for."""
    columns = element.get("projectList") if _class(element) == "Project" else None
    if not columns or columns[0][0].get("name") != INPUT or _class(columns[0][0]) != "Alias":
        return None
    return str(columns[0][1]["value"])


def _class(fields: dict[str, Any]) -> str:
    return str(fields.get("class", fields.get("product-class", ""))).rpartition(".")[2]


# -- for people


def _shown(node: Any) -> Iterator[str]:
    """The nodes of a plan, from top to bottom, without the stand-ins."""
    below = children(node)
    if name_of(node) == "Project" and any(_is_input(one) for one in below):
        return
    yield str(node.simpleString(_MANY))
    for child in below:
        yield from _shown(child)


def _plain(line: str) -> str:
    """A line without ids."""
    return _IDS.sub("", line).removeprefix("~")


def _is_input(node: Any) -> bool:
    return name_of(node) == "Project" and f"AS {INPUT}#" in str(node.simpleString(_MANY))


# -- state


def _layout(node: Any) -> Layout:
    kind = name_of(node)
    if kind == "Aggregate":
        return Layout(kind, (*_columns(node.groupingExpressions()), *_buffers(node)))
    if kind == "Join":
        return Layout(kind, tuple(c for side in children(node) for c in _columns(side.output())), certain=False)
    if kind in ("Deduplicate", "DeduplicateWithinWatermark"):
        return Layout(kind, (*_columns(node.keys()),))
    if kind == "Distinct":
        return Layout(kind, (*_columns(node.output()),))
    if kind == "FlatMapGroupsInPandasWithState":
        state = [(field.name(), field.dataType().catalogString()) for field in node.stateType().fields()]
        return Layout(kind, (*_columns(node.groupingAttributes()), *state))
    return Layout(kind, ())


def _columns(expressions: Any) -> Iterator[tuple[str, str]]:
    for i in range(expressions.size()):
        one = expressions.apply(i)
        yield _plain(str(one)), str(one.dataType().catalogString())


def _buffers(node: Any) -> Iterator[tuple[str, str]]:
    """What an aggregation keeps for each of its functions; a function that is used twice is kept once."""
    seen: set[str] = set()
    found = node.aggregateExpressions()
    for expression in (found.apply(i) for i in range(found.size())):
        for one in nodes(expression):
            if str(one.getClass().getSimpleName()) == "AggregateExpression":
                function, key = one.aggregateFunction(), str(one.canonicalized())
                if key not in seen:
                    seen.add(key)
                    yield from _buffer(function)


def _buffer(function: Any) -> Iterator[tuple[str, str]]:
    name = _plain(str(function))
    try:
        fields = function.aggBufferSchema().fields()
    except _REFUSALS:  # it stands for another aggregation, which Spark puts in its place later
        yield name, str(function.dataType().catalogString())
        return
    for field in fields:
        yield f"{field.name()} of {name}", str(field.dataType().catalogString())
