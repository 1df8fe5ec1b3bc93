"""The word problems of the demo, the tool calls that solve them, and the table that the lookup tool reads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOOKUP_TABLE", "PROBLEMS", "Problem", "ToolCall", "Turn", "problem_at"]

LOOKUP_TABLE: dict[str, str] = {
    "price of a croissant": "2.5",
    "price of a baguette": "3",
    "price of a coffee": "4",
    "price of a notebook": "6",
    "price of a pencil": "0.75",
    "price of a train ticket": "18",
    "price of a museum ticket": "11",
    "price of a litre of paint": "9.5",
    "price of a kilogram of apples": "3.2",
    "area covered by a litre of paint": "12",
    "seats in a bus": "52",
    "seats in a train car": "84",
    "eggs in a box": "12",
    "pages in the atlas": "288",
    "distance from Norhaven to Elmford": "156",
    "distance from Elmford to Quill Bay": "94",
    "speed of the ferry": "24",
    "days in the summer term": "63",
    "discount for members": "15",
    "height of the lighthouse": "38",
}
"""What the lookup tool knows: each entry's name and value, as text."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool.

    Args:
        tool: The tool's name.
        argument: What the tool is asked: an expression for the calculator, an entry's name for the lookup.
    """

    tool: str
    argument: str


@dataclass(frozen=True)
class Turn:
    """One turn of a solution: what is said and the calls that are made side by side."""

    thought: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Problem:
    """A word problem.

    Args:
        question: The problem as it is put to the policy.
        solution: The turns of a right solution; the last one calls the calculator and gets the answer.
        answer: The right answer.
    """

    question: str
    solution: tuple[Turn, ...]
    answer: float


def problem_at(index: int) -> Problem:
    """Return the problem of a sample; past the last one they begin again."""
    return PROBLEMS[index % len(PROBLEMS)]


def _look_up(*entries: str) -> Turn:
    return Turn(f"I need the {' and the '.join(entries)}.", tuple(ToolCall("lookup", entry) for entry in entries))


def _calculate(thought: str, expression: str) -> Turn:
    return Turn(thought, (ToolCall("calculator", expression),))


PROBLEMS: tuple[Problem, ...] = (
    Problem(
        "Maya buys 14 croissants and 6 baguettes and pays with a note of 100. How much change does she get?",
        (
            _look_up("price of a croissant", "price of a baguette"),
            _calculate("First the cost of everything she buys.", "14 * 2.5 + 6 * 3"),
            _calculate("The change is what remains of 100.", "100 - 53"),
        ),
        47,
    ),
    Problem(
        "A school takes 417 pupils on a trip by bus. How many buses must it order?",
        (
            _look_up("seats in a bus"),
            _calculate("A bus that is not full still has to come, so I round up.", "(417 + 52 - 1) // 52"),
        ),
        9,
    ),
    Problem(
        "A farm collects 1,150 eggs a day and packs them in boxes. How many boxes does it fill in 4 days?",
        (
            _look_up("eggs in a box"),
            _calculate("All the eggs of 4 days.", "1150 * 4"),
            _calculate("Only full boxes count.", "4600 // 12"),
        ),
        383,
    ),
    Problem(
        "Tom drives from Norhaven over Elmford to Quill Bay at 50 km an hour. How many hours does he drive?",
        (
            _look_up("distance from Norhaven to Elmford", "distance from Elmford to Quill Bay"),
            _calculate("The whole way, divided by his speed.", "(156 + 94) / 50"),
        ),
        5,
    ),
    Problem(
        "A wall of 18 by 4 metres gets two coats of paint. What does the paint cost?",
        (
            _look_up("area covered by a litre of paint", "price of a litre of paint"),
            _calculate("Two coats cover the area twice.", "2 * 18 * 4 / 12"),
            _calculate("That many litres, times the price.", "12 * 9.5"),
        ),
        114,
    ),
    Problem(
        "A family of 5 takes the train to the museum and back. What do all their tickets cost?",
        (
            _look_up("price of a train ticket", "price of a museum ticket"),
            _calculate("Each of them needs two train tickets and one museum ticket.", "5 * (2 * 18 + 11)"),
        ),
        235,
    ),
    Problem(
        "Ines reads 9 pages of the atlas every day. After how many days has she read all of it?",
        (
            _look_up("pages in the atlas"),
            _calculate("The pages divided by the pages of a day.", "288 / 9"),
        ),
        32,
    ),
    Problem(
        "A club member buys 20 notebooks. What does she pay after the discount?",
        (
            _look_up("price of a notebook", "discount for members"),
            _calculate("The full price first.", "20 * 6"),
            _calculate("The discount is in per cent.", "120 * (100 - 15) / 100"),
        ),
        102,
    ),
    Problem(
        "The ferry sails for 7 hours, then for 3 hours at half its speed. How far does it get?",
        (
            _look_up("speed of the ferry"),
            _calculate("Both parts of the way together.", "7 * 24 + 3 * 24 / 2"),
        ),
        204,
    ),
    Problem(
        "A train of 7 cars carries 455 passengers. How many seats are free?",
        (
            _look_up("seats in a train car"),
            _calculate("All the seats of the train.", "7 * 84"),
            _calculate("Those that nobody sits on.", "588 - 455"),
        ),
        133,
    ),
    Problem(
        "Each of 26 pupils uses one pencil a week for 8 weeks. What do the pencils cost?",
        (
            _look_up("price of a pencil"),
            _calculate("Pupils times weeks times the price.", "26 * 8 * 0.75"),
        ),
        156,
    ),
    Problem(
        "Jon drinks 2 coffees on every day of the summer term. What does he spend on coffee?",
        (
            _look_up("price of a coffee", "days in the summer term"),
            _calculate("Coffees of a day times days times the price.", "2 * 63 * 4"),
        ),
        504,
    ),
    Problem(
        "Each step inside the lighthouse is 19 centimetres high. How many steps lead to the top?",
        (
            _look_up("height of the lighthouse"),
            _calculate("The height in centimetres.", "38 * 100"),
            _calculate("Divided by the height of a step.", "3800 / 19"),
        ),
        200,
    ),
    Problem(
        "A cook buys 15 kilograms of apples and 8 boxes with eggs in them. "
        "How many eggs does he have, and how much more are they than the cost of the apples?",
        (
            _look_up("eggs in a box", "price of a kilogram of apples"),
            _calculate("The eggs less the cost of the apples.", "8 * 12 - 15 * 3.2"),
        ),
        48,
    ),
    Problem(
        "The ferry runs from Elmford to Quill Bay and back, then another 4 kilometres to its berth. "
        "How many hours is it at sea?",
        (
            _look_up("distance from Elmford to Quill Bay", "speed of the ferry"),
            _calculate("There, back and to the berth.", "2 * 94 + 4"),
            _calculate("Divided by its speed.", "192 / 24"),
        ),
        8,
    ),
    Problem(
        "A bakery sells 340 croissants in the morning and a quarter as many later. What does it take in?",
        (
            _look_up("price of a croissant"),
            _calculate("Croissants of the whole day.", "340 + 340 / 4"),
            _calculate("Times the price of one.", "425 * 2.5"),
        ),
        1062.5,
    ),
)
"""The dataset; a sample's index in it is the `sample_index` of its trajectories."""
