"""The tools compute and look up, and refuse everything else with a message."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rollout.demo import Calculator, Lookup, ToolError, calculate, format_number


class TestCalculate:
    """Arithmetic, and nothing else."""

    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("-4 + +1", -3),
            ("7 / 2", 3.5),
            ("7 // 2", 3),
            ("7 % 4", 3),
            ("2 ** 10", 1024),
            ("0.1 + 0.2", pytest.approx(0.3)),
        ],
    )
    def test_works_out_arithmetic(self, expression: str, value: float):
        """Operators and parentheses mean what they mean in Python."""
        assert calculate(expression) == value

    @pytest.mark.parametrize(
        "expression",
        [
            "__import__('os').system('true')",
            "open('/etc/passwd')",
            "(1).__class__",
            "[1, 2]",
            "'a' * 3",
            "True + 1",
            "lambda: 1",
            "1 if 1 else 2",
            "x + 1",
            "1 < 2",
            "~1",
            "1j",
        ],
    )
    def test_runs_no_code(self, expression: str):
        """Names, calls, attributes, texts and whatever else Python knows are not arithmetic."""
        with pytest.raises(ToolError, match="not arithmetic"):
            calculate(expression)

    @pytest.mark.parametrize("expression", ["", "1 +", "14 x 2", "2 = 2", "1" + " + 1" * 100, "(" * 150, "1\0"])
    def test_says_what_it_cannot_read(self, expression: str):
        """Text that is no expression, or a very long one, is refused."""
        with pytest.raises(ToolError, match=r"cannot read|longer than"):
            calculate(expression)

    @pytest.mark.parametrize("expression", ["9 ** 9 ** 9", "10 ** 64 ** 2", "1e308 * 10", "9" * 20, "2 ** 64"])
    def test_refuses_numbers_beyond_any_sense(self, expression: str):
        """A power tower is refused before it is computed."""
        with pytest.raises(ToolError, match="too large"):
            calculate(expression)

    @pytest.mark.parametrize("expression", ["1 / 0", "1 // 0", "1 % 0"])
    def test_division_by_zero_is_an_error_of_the_tool(self, expression: str):
        """The policy gets to read that it divided by zero."""
        with pytest.raises(ToolError, match="zero"):
            calculate(expression)

    def test_complex_results_are_refused(self):
        """The root of a negative number is no real number."""
        with pytest.raises(ToolError, match="not a real number"):
            calculate("(-8) ** 0.5")

    @given(st.text(alphabet="0123456789+-*/%(). e", max_size=40) | st.text(max_size=40))
    def test_any_text_gives_a_number_or_a_tool_error(self, text: str):
        """Whatever the policy writes, nothing else comes out."""
        try:
            value = calculate(text)
        except ToolError:
            return
        assert abs(value) <= 1e15


class TestFormatNumber:
    """Numbers as text."""

    @pytest.mark.parametrize(
        ("value", "text"),
        [(47.0, "47"), (1062.5, "1062.5"), (0.1 + 0.2, "0.3"), (-3, "-3"), (1e14, "1" + "0" * 14)],
    )
    def test_writes_numbers_as_people_do(self, value: float, text: str):
        """Whole numbers have no fraction and floats no rounding noise."""
        assert format_number(value) == text


class TestCalculator:
    """The calculator as a tool."""

    def test_answers_in_text(self):
        """What goes back into the conversation is text."""
        assert asyncio.run(Calculator().execute("6 * 7")) == "42"


class TestLookup:
    """The lookup table as a tool."""

    def test_finds_an_entry(self):
        """An entry is found by its exact name."""
        assert asyncio.run(Lookup({"price of tea": "3"}, latency=0).execute("price of tea")) == "3"

    def test_hints_at_the_nearest_entry(self):
        """A name that is nearly right is answered with the right one."""
        with pytest.raises(ToolError, match="no entry 'price of teas'; did you mean 'price of tea'"):
            asyncio.run(Lookup({"price of tea": "3"}, latency=0).execute("price of teas"))

    def test_says_only_that_it_does_not_know(self):
        """Where nothing is near, there is no hint."""
        with pytest.raises(ToolError, match=r"^no entry 'xyz'$"):
            asyncio.run(Lookup({"price of tea": "3"}, latency=0).execute("xyz"))
