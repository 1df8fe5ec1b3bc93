"""What a replay remembers."""

from __future__ import annotations

import pytest

from otel_rollout.replay import DeliveredLog


def noted(folder, *tokens, backend="mlflow", destination="http://mlflow:5000"):
    log = DeliveredLog(folder, backend, destination)
    log.add(tokens)
    log.close()


class TestDeliveredLog:
    """The file in DIR/.replay."""

    def test_remembers_what_was_noted(self, tmp_path):
        """A later replay knows what an earlier one has delivered, and nothing else."""
        noted(tmp_path, "one", "two")
        noted(tmp_path, "three")

        log = DeliveredLog(tmp_path, "mlflow", "http://mlflow:5000")

        assert [token in log for token in ("one", "two", "three", "four")] == [True, True, True, False]

    @pytest.mark.parametrize(
        ("backend", "destination"), [("mlflow", "http://mlflow:5001"), ("otlp", "http://mlflow:5000")]
    )
    def test_each_destination_has_a_memory_of_its_own(self, tmp_path, backend, destination):
        """What one server has says nothing of another one, nor of the same one by another route."""
        noted(tmp_path, "one")

        assert "one" not in DeliveredLog(tmp_path, backend, destination)

    def test_a_line_that_was_cut_short_counts_as_not_there(self, tmp_path):
        """A process that was killed while it wrote has not noted what it wrote last; what is noted next is whole."""
        noted(tmp_path, "one")
        (file,) = (tmp_path / ".replay").iterdir()
        with file.open("a") as end:
            end.write("tw")
        noted(tmp_path, "three")

        log = DeliveredLog(tmp_path, "mlflow", "http://mlflow:5000")

        assert [token in log for token in ("one", "tw", "two", "three")] == [True, True, False, True]

    @pytest.mark.parametrize("place", [".replay", "file"])
    def test_nothing_is_written_behind_a_link(self, tmp_path, place):
        """What somebody linked into the folder is not ours to write to or to remove; the replay says so."""
        folder, theirs = tmp_path / "traces", tmp_path / "theirs"
        folder.mkdir()
        noted(folder, "one")
        (file,) = (folder / ".replay").iterdir()
        link, theirs = (file, theirs / "x") if place == "file" else (folder / ".replay", theirs)
        theirs.parent.mkdir(exist_ok=True)
        link.rename(theirs)
        link.symlink_to(theirs)
        log = DeliveredLog(folder, "mlflow", "http://mlflow:5000")
        log.add(["two"])
        assert "can't be remembered" in log.trouble
        log = DeliveredLog(folder, "mlflow", "http://mlflow:5000")
        assert [token in log for token in ("one", "two")] == [True, False]
        log.forget()
        assert theirs.exists()

    def test_an_unknown_destination_is_not_remembered(self, tmp_path):
        """Without a destination nothing is noted, because the next replay may go elsewhere; that is said."""
        noted(tmp_path, "one", destination=None)

        log = DeliveredLog(tmp_path, "mlflow", None)

        assert "one" not in log
        assert "has no destination" in log.trouble
        assert not (tmp_path / ".replay").exists()
