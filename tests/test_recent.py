"""A dict that is bounded in number."""

from otel_rollout.export import RecentDict


class TestRecentDict:
    """`RecentDict`."""

    def test_the_oldest_goes_first(self):
        """One key too many drops the key that was set longest ago."""
        recent = RecentDict(2)
        recent.update(dict.fromkeys("abc", True))

        assert list(recent) == ["b", "c"]

    def test_a_repeated_key_is_new_again(self):
        """Setting a key once more keeps it, with its new value."""
        recent = RecentDict(2)
        recent["a"], recent["b"] = 1, 2
        recent["a"] = 3
        recent["c"] = 4

        assert dict(recent) == {"a": 3, "c": 4}

    def test_reading_keeps_the_order(self):
        """Reading a key does not make it newer."""
        recent = RecentDict(2)
        recent["a"], recent["b"] = 1, 2
        assert recent["a"] == recent.get("a") == 1
        recent["c"] = 3

        assert list(recent) == ["b", "c"]
