from hypothesis import given
from hypothesis import strategies as st

from treadle.apps.conversation.state.persistent_list import PersistentList

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers()),
        st.tuples(st.just("put"), st.integers(0, 200)),
        st.tuples(st.just("first"), st.integers(0, 200)),
    ),
    max_size=120,
)


@given(ACTIONS)
def test_it_behaves_like_a_list_and_old_versions_do_not_change(actions):
    values: PersistentList[object] = PersistentList()
    model: list[object] = []
    versions = [(values, list(model))]
    for kind, number in actions:
        if kind == "add":
            values, model = values.append(number), [*model, number]
        elif kind == "put" and number < len(model):
            values = values.set(number, "new")
            model = [*model[:number], "new", *model[number + 1 :]]
        elif kind == "first":
            values, model = values.truncate(number), model[:number]
        versions.append((values, list(model)))
    assert all(list(kept) == expected for kept, expected in versions)


@given(st.integers(0, 3_000), st.sets(st.integers(0, 2_999), max_size=5), st.integers(0, 40))
def test_what_changed_between_two_versions_is_found(length, places, more):
    old: PersistentList[object] = PersistentList()
    for number in range(length):
        old = old.append(number)
    new, changed = old, sorted(place for place in places if place < length)
    for place in changed:
        new = new.set(place, object())
    for number in range(more):
        new = new.append(number)
    assert list(new.changed_indexes(old)) == [*changed, *range(length, length + more)]


def test_looking_for_changes_does_not_look_at_everything():
    values: PersistentList[object] = PersistentList()
    for number in range(100_000):
        values = values.append(number)
    assert list(values.set(50_000, "x").changed_indexes(values)) == [50_000]
