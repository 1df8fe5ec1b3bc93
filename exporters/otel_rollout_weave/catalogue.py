"""The objects that calls refer to: the project, an op for each name, and the scorers of rewards."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from otel_rollout.export.http import RequestFailedError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.log_once import warn_once
from otel_rollout.text.sanitize import replace_surrogates
from otel_rollout_weave.api import WeaveApi
from otel_rollout_weave.settings import CREDENTIALS_HINT

MAX_NAME: Final = 128
"""Weave refuses the whole batch (400) for a longer object id or plain op name."""

MAX_OPS: Final = 1000
"""The most ops that one process registers; span names that hold an id would make objects without end."""

_OP_SOURCE: Final = """import weave


@weave.op(name={name!r})
def op(*args, **kwargs):
    # Recorded by otel-rollout, which does not capture source code.
    ...
"""


def object_id_of(name: str) -> str:
    """Return an op's name as an object id: at most 128 of the characters that Weave allows."""
    allowed = re.sub(r"[^\w.-]+", "-", name).strip("-_.") or "op"
    if len(allowed) <= MAX_NAME:
        return allowed
    return f"{allowed[: MAX_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class Catalogue:
    """Registers projects, ops and scorers, each once per process."""

    def __init__(self, api: WeaveApi) -> None:
        self.api = api
        self._default_entity: str | None = None
        self._projects: dict[str, str] = {}
        self._references: dict[tuple[str, str, str], str] = {}

    def project_id(self, name: str) -> str:
        """Return `entity/project` for `entity/project` or `project`; create the project if there is none."""
        if name not in self._projects:
            entity, _, project = name.rpartition("/")
            if not project or "/" in entity:
                reason = f"{name!r} is no Weave project: give it as 'entity/project' or 'project'"
                raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, reason))
            entity = entity or self.api.settings.entity or self._entity()
            self._projects[name] = f"{entity}/{self.api.ensure_project(entity, project)}"
        return self._projects[name]

    def known_project_id(self, name: str) -> str | None:
        """Return the same without a request; None if nothing has gone to the project yet."""
        return self._projects.get(name)

    def op_name(self, project_id: str, name: str) -> str:
        """Register an op by its span's name and return its reference; the plain name if Weave refuses it."""
        key = (project_id, "op", name)
        known = self._references.get(key)
        if known is not None:
            return known
        name = replace_surrogates(name)
        plain = name[:MAX_NAME] or "op"
        if len(self._references) >= MAX_OPS:
            return plain
        try:
            source = _OP_SOURCE.format(name=name).encode()
            file = self.api.create_file(project_id, "obj.py", source)
            value = {"_type": "CustomWeaveType", "weave_type": {"type": "Op"}, "files": {"obj.py": file}}
            object_id = object_id_of(name)
            digest = self.api.create_object(project_id, object_id, value)
            reference = f"weave:///{project_id}/op/{object_id}:{digest}"
        except RequestFailedError as failure:
            if failure.outcome.verdict is not Verdict.REFUSED:
                raise
            warn_once(f"Weave op {name}", "Weave refused the op %r; its calls carry the plain name: %s", name, failure)
            reference = plain
        self._references[key] = reference
        return reference

    def scorer(self, project_id: str, name: str) -> str:
        """Register the scorer of a reward or of a part and return its reference."""
        key = (project_id, "object", name)
        if key not in self._references:
            scorer = {"_type": "Scorer", "_class_name": "Scorer", "_bases": ["Object", "BaseModel"], "name": name}
            object_id = object_id_of(name)
            digest = self.api.create_object(project_id, object_id, scorer)
            self._references[key] = f"weave:///{project_id}/object/{object_id}:{digest}"
        return self._references[key]

    def _entity(self) -> str:
        if self._default_entity is None:
            self._default_entity = self.api.default_entity()
        if self._default_entity is None:
            reason = f"the owner of the API key has no default entity; {CREDENTIALS_HINT}"
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, reason))
        return self._default_entity
