"""An agent loop of a user's own that doesn't keep what the model wrote before a tool call."""

from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop


class ForgetfulAgentLoop(ToolAgentLoop):
    """verl's tool agent loop, whose later prompts have dots in place of earlier words."""

    async def _handle_generating_state(self, agent_data, sampling_params, ignore_termination=False):
        written, dots = (self.tokenizer.encode(text, add_special_tokens=False) for text in ("I call", "......"))
        ids = agent_data.prompt_ids
        for start in range(len(ids)):
            if ids[start : start + len(written)] == written:
                ids = [*ids[:start], *dots, *ids[start + len(dots) :]]
        agent_data.prompt_ids = ids
        return await super()._handle_generating_state(agent_data, sampling_params, ignore_termination)
