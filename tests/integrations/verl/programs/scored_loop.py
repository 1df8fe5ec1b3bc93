"""An agent loop of a user's own: it scores its turns, and has an op that takes the loop's state."""

from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from otel_rollout import rollout_trace_op


class ScoredAgentLoop(ToolAgentLoop):
    """verl's tool agent loop, with a score per turn of the model."""

    async def _handle_generating_state(self, agent_data, sampling_params, ignore_termination=False):
        state = await super()._handle_generating_state(agent_data, sampling_params, ignore_termination)
        await self.score(agent_data, sampling_params)
        return state

    @rollout_trace_op
    async def score(self, agent_data, sampling_params):
        """Score the turn."""
        agent_data.turn_scores.append(agent_data.assistant_turns / 2)
        return agent_data
