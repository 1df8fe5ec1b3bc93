"""A small agentic rollout to try tracing with: word problems, two tools, a policy that makes mistakes."""
