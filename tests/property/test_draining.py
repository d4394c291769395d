"""However heads get their turns and their data: all meet at one epoch, and none makes epochs that nobody needs."""

from hypothesis import given
from hypothesis import strategies as st

from tidelock.epochs import Epoch
from tidelock.recovery import Drain


@given(
    begins=st.lists(st.integers(-1, 5), min_size=1, max_size=4),
    data=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    turns=st.randoms(use_true_random=False),
    more=st.integers(0, 3),
    ends=st.booleans(),
)
def test_all_heads_meet(begins: list[int], data: list[int], turns, more: int, ends: bool) -> None:
    """Each head has epochs with data to make, and then ticks for as long as it is let, or ends by itself."""
    heads = {f"h{number}": begin for number, begin in enumerate(begins)}
    full = {head: begin + data[number] for number, (head, begin) in enumerate(heads.items())}
    drain, at = Drain({head: Epoch(begin) for head, begin in heads.items()}), dict(heads)
    asked = 0
    ends = ends and len(heads) == 1  # only a head on its own has no ticks
    for head in turns.choices(list(heads), k=60) + list(heads) * 60:
        if ends and at[head] >= full[head] and drain.last is None:
            drain.ended(head)
        elif not ends or at[head] < full[head]:
            step = Epoch(at[head] + 1)
            if drain.admits(head, step, moves=step <= full[head]):
                at[head] = step
        if drain.last is not None and set(at.values()) == {drain.last} and asked < more and not ends:
            drain.one_more()
            asked += 1
    newest = max(max(full.values()), max(begins))
    assert drain.last == newest + asked
    assert ends or set(at.values()) == {newest + asked}
    assert all(at[head] >= full[head] for head in heads), "what was there was taken"
