"""Identity of trajectories."""

from __future__ import annotations

from typing import Any

from otel_rollout.hooks.verl import META_KEY, Batch, BatchLedger, PromptSelection, Row, identify


def trajectory(step: int = 3, index: object = 7, rollout_n: int = 0) -> dict[str, object]:
    """Return a result of verl's `get_trajectory_info`."""
    return {"step": step, "sample_index": index, "rollout_n": rollout_n, "validate": False}


class TestIdentify:
    """One trajectory."""

    def test_session_is_the_rollout_number(self) -> None:
        """In the v1 trainer the rollout number is the session, not verl's, which is 0 for all of them."""
        columns = {"uid": "u", "index": 7, "session_id": 2}
        identity = identify(trajectory(), columns, is_index_trusted=True)
        assert (identity.sample_index, identity.rollout_n) == (7, 2)
        assert (identity.sample_index_from, identity.rollout_n_from) == ("index", "session_id")

    def test_index_that_may_be_another_prompts(self) -> None:
        """An index that nobody vouches for gives way to the uid, and stays on the span as the dataset's index."""
        identity = identify(trajectory(index=0), {"uid": "u", "index": 0, "session_id": 0})
        assert (identity.sample_index, identity.sample_index_from) == ("u", "uid")
        assert identity.attributes()["rollout.dataset_index"] == 0

    def test_unknown_step(self) -> None:
        """With step -1 the uid tells epochs apart, in which the index comes again."""
        identity = identify(trajectory(step=-1), {"uid": "u", "index": 7}, row=Row(True, 0))
        assert (identity.sample_index, identity.step) == ("u", -1)

    def test_no_index(self) -> None:
        """Without an index verl numbers a worker's rows, which another worker has as well: the uid is taken."""
        identity = identify(trajectory(index=4), {"uid": "u"}, row=Row(False, 1))
        assert (identity.sample_index, identity.rollout_n) == ("u", 1)
        assert "rollout.dataset_index" not in identity.attributes()

    def test_nothing_better(self) -> None:
        """Without uid and index, verl's numbers are kept, and the attributes say what they are."""
        identity = identify(trajectory(index=4), {})
        assert identity.attributes() == {
            "rollout.sample_index_from": "row of the worker",
            "rollout.rollout_n_from": "worker",
        }


class Watched:
    """A class of a dataset, none of whose code may run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, *_: object) -> Any:
        """Fail."""
        raise AssertionError("code of a user's class ran")

    item = __str__ = __repr__ = __eq__ = fail
    __hash__ = fail


class TestValuesOfOtherClasses:
    """Columns of a dataset may hold anything."""

    def test_identify(self) -> None:
        """A uid and an index of any class tell samples apart by what they hold."""
        first, second = (
            identify(trajectory(), {"uid": Watched(name), "index": Watched(name), "session_id": 0})
            for name in ("first", "second")
        )
        assert first.sample_index == f'{{"type":"{__name__}.Watched","name":"first"}}'
        assert second.sample_index == f'{{"type":"{__name__}.Watched","name":"second"}}'

    def test_sampling(self) -> None:
        """All rows of a sample are traced, or none."""
        names = ("a", "b", "a", "b")
        batch = Batch({"uid": [Watched(name) for name in names]}, {}, max_samples=1)
        assert sorted(batch.is_traced({"uid": Watched(name)}) for name in names) == [False, False, True, True]


class TestBatchLedger:
    """Rows of a whole batch."""

    def test_group_in_order(self) -> None:
        """Rows of a group are numbered over the whole batch, wherever it is split."""
        rows = BatchLedger().number(1, False, ["a", "a", "b", "b", "a"], [1, 1, 2, 2, 1])
        assert [row.rollout_n for row in rows] == [0, 1, 0, 1, 2]
        assert all(row.is_index_unique for row in rows)

    def test_shared_index(self) -> None:
        """An index that two prompts of a batch have is neither's."""
        rows = BatchLedger().number(1, False, ["a", "b", "c"], [0, 0, 5])
        assert [row.is_index_unique for row in rows] == [False, False, True]

    def test_index_taken_by_an_earlier_batch(self) -> None:
        """The first batch of a step keeps the index that it was traced by; a later prompt with it goes by its uid."""
        ledger = BatchLedger()
        assert ledger.number(1, True, ["a"], [5]) == [Row(True, 0)]
        assert ledger.number(1, True, ["b", "a"], [5, 5]) == [Row(False, 0), Row(True, 1)]

    def test_steps_are_apart(self) -> None:
        """The same index in another step, or in validation, is another trajectory anyway."""
        ledger = BatchLedger()
        ledger.number(1, False, ["a"], [5])
        assert ledger.number(2, False, ["b"], [5]) == [Row(True, 0)]
        assert ledger.number(1, True, ["c"], [5]) == [Row(True, 0)]

    def test_no_index(self) -> None:
        """Without an index column no index is anybody's."""
        assert BatchLedger().number(1, False, ["a"], None) == [Row(False, 0)]


class TestBatch:
    """A worker's part of a batch."""

    def test_whole_batch_before_the_part(self) -> None:
        """A worker takes its rows' numbers from the whole batch, by verl's own numbering of the rows."""
        batch = Batch({"uid": ["b"]}, {META_KEY: [Row(True, 0), Row(True, 5)]}, None)
        identity = batch.identify(trajectory(), {"uid": "b", "index": 7, "priority": 1})
        assert (identity.sample_index, identity.rollout_n, identity.rollout_n_from) == (7, 5, "batch")

    def test_own_count(self) -> None:
        """Without the whole batch a worker counts its own rows, and says so."""
        batch = Batch({"uid": ["b", "b"]}, {}, None)
        found = [batch.identify(trajectory(), {"uid": "b", "index": 7}) for _ in range(2)]
        assert [(identity.rollout_n, identity.rollout_n_from) for identity in found] == [(0, "worker"), (1, "worker")]

    def test_share(self) -> None:
        """A share of the samples is picked with all their rows."""
        columns = {"uid": ["a", "a", "b", "b"]}
        batch = Batch(columns, {"global_steps": 1}, 1)
        picked = [batch.is_traced({"uid": uid}) for uid in columns["uid"]]
        assert picked in ([True, True, False, False], [False, False, True, True])

    def test_share_of_rows_that_nothing_tells_apart(self) -> None:
        """Without a uid and an index the share is that of the first rows."""
        batch = Batch({}, {"global_steps": 1}, 2)
        assert [batch.is_traced({}) for _ in range(4)] == [True, True, False, False]


class TestPromptSelection:
    """Prompts that come one by one."""

    def test_first_ones(self) -> None:
        """If prompts come one by one, the first ones of each step are picked, with all their sessions."""
        selection = PromptSelection()
        asked = [selection.is_traced(1, False, prompt, 1) for prompt in ("a", "b", "a")]
        assert asked == [True, False, True]
        assert selection.is_traced(2, False, "b", 1)
        assert selection.is_traced(1, False, "z", None)
