"""One trajectory as text, whole."""

from otel_rollout.demo.waterfall import waterfall

from .spans import make_span, make_trajectory

EXPECTED = """\
agent_loop                AGENT      100.0 ms  ━━━━━━━━━━  completed, reward 1.0
├─ AgentLoop.run          CHAIN       90.0 ms  ━━━━━━━━━
│  ├─ Policy.generate     LLM         50.0 ms  ━━━━━       90→2 tok  I add.
│  ├─ Lookup.execute      TOOL        40.0 ms       ━━━━   ToolError: no entry 'teas'
│  └─ Calculator.execute  TOOL        10.0 ms       ━      1 + 1 = 2
└─ Verifier.score         EVALUATOR    5.0 ms           ━  1.0"""


class TestWaterfall:
    """The tree of one trajectory as lines."""

    def test_shows_the_tree_with_durations_and_what_each_span_was_about(self):
        """A line has the name in its place of the tree, kind, duration, when it ran, and input, output or error."""
        lines = [line.plain.rstrip() for line in waterfall(make_trajectory(), bar_width=10)]
        assert "\n".join(lines) == EXPECTED

    def test_errors_are_red(self):
        """A failed span stands out on a terminal."""
        failed = waterfall(make_trajectory(), bar_width=10)[3]
        assert {str(part.style) for part in failed.spans} >= {"red", "bold red"}

    def test_a_span_without_payload_has_a_line_too(self):
        """Where payloads were dropped, the tree is still drawn."""
        bare = make_span(1, "agent_loop", "LLM", (0, 0), parent=None)
        assert waterfall([bare], bar_width=4)[0].plain.split() == ["agent_loop", "LLM", "0.0", "ms", "━", "0→0", "tok"]
