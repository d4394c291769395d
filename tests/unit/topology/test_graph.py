import json
from typing import Any

import pytest
from tests.unit.topology.shapes import chain, operator, pipeline, sink, source

from tidelock.errors import PipelineError
from tidelock.topology import Kind, Topology, TopologyNode, connect

LOOP = (source("edges"), operator("scores", "edges", "ranks"), operator("ranks", "scores"), sink("store", "ranks"))


def names(topology: Topology) -> str:
    return " ".join(node.name for node in topology.nodes)


def test_nodes_come_after_their_inputs_and_otherwise_as_declared() -> None:
    topology = pipeline(
        sink("z", "c"), operator("c", "b", "x"), source("x"), operator("b", "a"), source("a"), sink("y", "x")
    )
    assert names(topology) == "x a b c z y"


def test_who_reads_whom() -> None:
    topology = pipeline(source("a"), operator("b", "a"), operator("c", "a", "b"), sink("z", "c"))
    assert topology.node("b").kind is Kind.OPERATOR
    assert topology.consumers("a") == ("b", "c")
    assert topology.consumers("z") == ()
    assert topology.forward_inputs("c") == ("a", "b")
    assert topology.ancestors("z") == {"a", "b", "c"}
    assert topology.ancestors("a") == frozenset()


def test_an_unknown_node_is_a_question() -> None:
    with pytest.raises(PipelineError, match="trending has no 'bb'; did you mean 'b'"):
        chain().node("bb")


def test_feedback_makes_back_edges() -> None:
    topology = pipeline(*LOOP, ranks="id long")
    assert topology.back_edges == {("ranks", "scores")}
    assert names(topology) == "edges scores ranks store"
    assert topology.consumers("ranks") == ("scores", "store")
    assert topology.forward_consumers("ranks") == ("store",)
    assert topology.forward_inputs("scores") == ("edges",)
    assert topology.back_inputs("scores") == ("ranks",)
    assert topology.ancestors("scores") == {"edges"}


def test_an_operator_may_read_itself_an_epoch_later() -> None:
    topology = pipeline(source("edges"), operator("scores", "edges", "scores"), scores="id long")
    assert topology.back_edges == {("scores", "scores")}


def test_the_signature_is_json_and_tells_pipelines_apart() -> None:
    first = pipeline(*LOOP, ranks="id long").signature()
    assert json.loads(json.dumps(first)) == first
    assert first == pipeline(*LOOP, ranks="id long").signature()
    assert first != pipeline(*LOOP, ranks="id int").signature()
    assert first["nodes"][1] == {
        "name": "scores",
        "kind": "operator",
        "inputs": ["edges", "ranks"],
        "mode": "append",
        "subject": None,
    }


WORDS = (source("tweets"), operator("words", "tweets"))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((source("top-k"),), r"'top-k' cannot be the name of a source: use letters, digits and _"),
        ((source("2nd"),), r"'2nd' cannot be .* as in 'my_2nd'"),
        ((source("größe"),), r"'größe' cannot be the name"),
        ((source("class"),), r"'class' .* a word of Python"),
        ((source("spark"),), r"'spark' cannot be the name of a source: that word is taken"),
        ((source("a"), operator("epoch", "a")), r"'epoch' cannot be the name of an operator: that word is taken"),
        ((*WORDS, source("words")), r"operator words and source words have the same name: rename"),
        (
            (*WORDS, operator("counts", "word"), sink("z", "counts")),
            r"operator counts has a parameter 'word', but there is no source or operator of that name; "
            r"did you mean 'words'\?",
        ),
        ((*WORDS, sink("store", "xyz")), r"sink store has a parameter 'xyz', .*; there are: tweets, words"),
        ((*WORDS, sink("store")), r"sink store has 0 inputs: a sink reads exactly one"),
        ((*WORDS, sink("store", "words", "tweets")), r"sink store has 2 inputs"),
        ((*WORDS, sink("z", "words"), operator("c", "z")), r"operator c reads z, but that is a sink"),
        ((*WORDS, operator("c")), r"operator c has no inputs: name a source or an operator"),
        ((*WORDS, operator("c", "words", "words")), r"operator c names one of its inputs twice"),
        (
            (source("a"), TopologyNode("b", Kind.SOURCE, ("a",))),
            r"source b has the parameter 'a': a source takes only",
        ),
        (WORDS, r"nothing reads operator words: add a sink or publish it"),
        ((source("a"), source("b"), sink("z", "a")), r"nothing reads source b: add a sink or publish it"),
        (
            (source("a", subject="s.t"), operator("b", "a", subject="s.t")),
            r"source a and operator b are both published as 's.t'",
        ),
        ((source("a", subject=" "),), r"source a is published under an empty subject"),
        ((source("a"), sink("z", "a", subject="s")), r"sink z cannot be published: it writes no log"),
        ((source("a", failure_rate=-0.1),), r"source a has the failure_rate -0.1"),
        ((source("a", failure_rate=float("nan")),), r"source a has the failure_rate nan"),
        ((source("a"), sink("z", "a", epochs_per_batch=0)), r"sink z asks for 0 epochs per batch: use 1 or more"),
        ((source("a", mode="upsert"),), r"mode 'upsert': use one of append, update, complete"),
        ((), r"pipeline trending has no source"),
        ((operator("b", "b"),), r"has no source: declare one with @pipeline.source"),
        (
            (source("a"), operator("c", "b"), operator("b", "a", "c"), sink("z", "c")),
            r'c -> b -> c is a circle: .* pipeline.feedback\("c", schema=...\)',
        ),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(nodes: tuple[TopologyNode, ...], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        pipeline(*nodes)


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ({"score": "id long"}, r"feedback of 'score': there is no operator of that name; did you mean 'scores'\?"),
        ({"edges": "id long"}, r"feedback of 'edges': it is a source; feed back an operator"),
        ({"store": "id long"}, r"feedback of 'store': it is a sink; feed back an operator"),
        ({"ranks": " "}, r"feedback of 'ranks' has no schema"),
        ({"ranks": "id long", "other": "id long"}, r"feedback of 'other' closes no circle: none of the operators"),
        ({}, r"scores -> ranks -> scores is a circle"),
    ],
)
def test_feedback_that_cannot_work(feedback: dict[str, str], message: str) -> None:
    nodes = (*LOOP, operator("other", "ranks"), sink("second", "other"))
    with pytest.raises(PipelineError, match=message):
        pipeline(*nodes, **feedback)


def test_a_second_circle_needs_its_own_feedback() -> None:
    nodes = (
        source("s"),
        operator("a", "s", "b", "c"),
        operator("b", "a"),
        operator("c", "a"),
        sink("z", "b"),
    )
    with pytest.raises(PipelineError, match="a -> c -> a is a circle"):
        pipeline(*nodes, b="id long")
    both: dict[str, Any] = {"b": "id long", "c": "id long"}
    assert pipeline(*nodes, **both).back_edges == {("b", "a"), ("c", "a")}


def test_a_loop_needs_something_from_outside() -> None:
    nodes = (source("s"), sink("z", "s"), operator("a", "b"), operator("b", "a"))
    with pytest.raises(PipelineError, match="the loop of a, b reads nothing but itself"):
        pipeline(*nodes, a="id long")


def test_a_pipeline_has_a_name() -> None:
    with pytest.raises(PipelineError, match="no name"):
        connect(" ", [source("a"), sink("z", "a")], {})
