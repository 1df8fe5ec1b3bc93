"""Fields that a class hides from its repr or its dump."""

from __future__ import annotations

import dataclasses

import attrs
import pydantic
import pytest

from tests.payload_values import read

pytestmark = pytest.mark.every_python


class TestHiddenFields:
    """A field that a class hides from its repr keeps its name in the payload, and loses its value."""

    def test_pydantic(self):
        """`SecretStr`, `repr=False` and `exclude=True` are hidden."""

        class Model(pydantic.BaseModel):
            plain: str = "shown"
            secret: pydantic.SecretStr = pydantic.SecretStr("hunter2")
            unshown: str = pydantic.Field("hunter2", repr=False)
            excluded: str = pydantic.Field("hunter2", exclude=True)

        assert read(Model()) == {
            "plain": "shown",
            "secret": "[hidden]",
            "unshown": "[hidden]",
            "excluded": "[hidden]",
        }

    def test_pydantic_v1(self):
        """The first version of pydantic hides by the same words."""
        v1 = pytest.importorskip("pydantic.v1", reason="pydantic without its v1 module", exc_type=ImportError)

        class Model(v1.BaseModel):
            plain: str = "shown"
            secret: v1.SecretStr = v1.SecretStr("hunter2")
            unshown: str = v1.Field("hunter2", repr=False)
            excluded: str = v1.Field("hunter2", exclude=True)

        assert read(Model()) == {"plain": "shown", "secret": "[hidden]", "unshown": "[hidden]", "excluded": "[hidden]"}

    def test_dataclass(self):
        """`field(repr=False)` is hidden, with slots too."""

        @dataclasses.dataclass
        class Data:
            plain: int
            hidden: str = dataclasses.field(repr=False)

        @dataclasses.dataclass(slots=True)
        class Slots:
            plain: int
            hidden: str = dataclasses.field(repr=False)

        assert read(Data(1, "hunter2")) == {"plain": 1, "hidden": "[hidden]"}
        assert read(Slots(1, "hunter2")) == {"plain": 1, "hidden": "[hidden]"}

    def test_attrs(self):
        """A field without a repr, or with one of its own, is hidden."""

        @attrs.define
        class Data:
            plain: int
            hidden: str = attrs.field(repr=False)
            masked: str = attrs.field(repr=lambda value: "***")

        assert read(Data(1, "hunter2", "hunter2")) == {"plain": 1, "hidden": "[hidden]", "masked": "[hidden]"}

    def test_classes_that_are_named_so(self):
        """A class with the name of a secret shows nothing."""

        class Secret:
            def __init__(self) -> None:
                self.value = "hunter2"

        class Credentials(Secret):
            pass

        assert read([Secret(), Credentials()]) == ["[hidden]", "[hidden]"]

    def test_a_class_whose_name_only_begins_like_that(self):
        """A class is hidden for the word, and not for its first letters."""

        class SecretaryProblem:
            def __init__(self) -> None:
                self.best = 2

        shown = read(SecretaryProblem())
        assert (shown["type"].rpartition(".")[2], shown["best"]) == ("SecretaryProblem", 2)
