import numpy as np
import pytest

from tidelock.planning.document import read_model, write_model
from tidelock.planning.drawing import draw_chain, draw_dag, draw_tree
from tidelock.planning.model import Model


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_same_seed_draws_the_same_topology_and_another_one_does_not() -> None:
    for draw in (draw_chain, draw_tree, draw_dag):
        assert draw(generator(3), 10) == draw(generator(3), 10)
        assert draw(generator(3), 10) != draw(generator(4), 10)


def test_the_defaults_are_those_of_table_4_1() -> None:
    chain, tree = draw_chain(generator()), draw_tree(generator())
    assert (len(chain.operators), chain.input_rate, chain.is_chain) == (15, 3000.0, True)
    assert (len(tree.operators), tree.input_rate, tree.is_tree) == (15, 1000.0, True)
    assert chain.storage_cost == tree.storage_cost == 1.6e-6


@pytest.mark.parametrize("draw", [draw_chain, draw_tree, draw_dag])
def test_attributes_are_in_the_ranges_of_section_4_1(draw: object) -> None:
    operators = draw(generator(1), 300).operators  # type: ignore[operator]
    selectivities = [one.selectivity for one in operators]
    states = [one.state_size for one in operators]
    assert 0.1 <= min(selectivities) < 0.12 < 0.98 < max(selectivities) <= 1
    assert 10_000 <= min(states) < 10_200 < 19_800 < max(states) <= 20_000
    assert {(one.processing_cost, one.tuple_size) for one in operators} == {(1e-5, 1.0)}


def test_operators_fail_in_proportion_to_a_parallelism_of_two_to_six() -> None:
    rates = np.array([one.failure_rate for one in draw_chain(generator(2), 200).operators])
    parallelism = 2 * rates / rates.min()
    assert parallelism == pytest.approx(parallelism.round())
    assert set(parallelism.round()) == {2, 3, 4, 5, 6}


def test_an_operator_fails_ten_times_in_a_hundred_minutes_on_average_and_never_less_than_at_all() -> None:
    rates = [one.failure_rate for seed in range(2000) for one in draw_chain(generator(seed), 3).operators]
    assert min(rates) > 0
    assert np.mean(rates) == pytest.approx(0.1, rel=0.03)


def fan_outs(model: Model) -> list[int]:
    return [len(readers) for readers in model.readers]


def test_a_tree_uses_its_fan_out_and_no_more() -> None:
    trees = [draw_tree(generator(seed)) for seed in range(50)]
    assert all(tree.is_tree for tree in trees)
    assert max(max(fan_outs(tree)) for tree in trees) == 3
    assert max(max(fan_outs(draw_tree(generator(seed), fan_out=2))) for seed in range(20)) == 2
    assert draw_tree(generator(), fan_out=1).is_chain


def test_a_dag_has_the_inputs_and_sources_asked_for() -> None:
    dags = [draw_dag(generator(seed), 12, max_inputs=3, sources=2) for seed in range(30)]
    assert all([len(inputs) for inputs in dag.inputs][:2] == [0, 0] for dag in dags)
    counts = {len(inputs) for dag in dags for inputs in dag.inputs[2:]}
    assert counts == {1, 2, 3}
    assert draw_dag(generator(), 9, max_inputs=1).is_tree


def test_what_is_drawn_can_be_written_and_read() -> None:
    for drawn in (draw_chain(generator(5)), draw_tree(generator(5)), draw_dag(generator(5), 15)):
        read = read_model(write_model(drawn))
        assert set(read.operators) == set(drawn.operators)
        assert (read.input_rate, read.storage_cost) == (drawn.input_rate, drawn.storage_cost)


def test_a_topology_of_one_operator_is_a_source() -> None:
    assert draw_chain(generator(), 1).inputs == draw_tree(generator(), 1).inputs == draw_dag(generator(), 1).inputs
