"""A tool with a life cycle that overrides `execute` without a decorator."""

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


class Calculator(BaseTool):
    """Evaluates an expression."""

    async def execute(self, instance_id, parameters, **kwargs):
        """Return the value, a reward and a metric."""
        value = eval(parameters["expression"], {"__builtins__": {}})
        return ToolResponse(text=str(value)), 0.25, {"calls": 1}
