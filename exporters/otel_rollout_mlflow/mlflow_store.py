"""MLflow's own store: the import of it, its assessments, and its errors in the terms of delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.installing import install_line
from otel_rollout_mlflow.store import REWARD_SOURCE, AttemptError, Feedback, configuration_error

FIRST_VERSION: Final = (3, 14)
"""The first version whose store takes several traces in one call and makes trace tags of resource attributes."""
TEXTS_VERSION: Final = (3, 18)
"""The first version whose store keeps a text that looks like JSON as text."""

_PASSING: Final = frozenset({"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED"})
_INVALID: Final = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST"})

_OTHER_VERSION: Final = (
    "the tables of the MLflow database are of another version than the mlflow that is installed here: install the "
    "version that made them, or, if they are older, run `mlflow db upgrade` with the tracking URI"
)

_DEADLOCKS: Final = frozenset({"40001", "40P01", 1205, 1213})
# psycopg's classes for the first three are a wrong statement's too; MySQL and MariaDB have numbers.
_DENIED: Final = frozenset({"42501", "3F000", 1044, 1142, 1143})
_READ_ONLY: Final = frozenset({"25006", 1290, 1792, 1836})
_CONSTRAINTS: Final = ("IntegrityError", "UniqueViolation", "ForeignKeyViolation")
_CONNECTION: Final = ("OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "CannotConnectNow")

_Result = TypeVar("_Result")


class Fault:
    """The meaning of a database driver's error for the transaction."""

    DEADLOCK: Final = "deadlock"
    """Two writers waited for each other: the same transaction again."""
    CONSTRAINT: Final = "constraint"
    """Another writer was quicker, or the experiment is gone: read again."""
    CONNECTION: Final = "connection"
    """The database is away or busy: a new connection, later."""
    READ_ONLY: Final = "read-only"
    """The server takes no writes, as a standby for another server: a new connection, later."""
    DENIED: Final = "denied"
    """The user may not write: nothing helps but other rights."""
    OTHER: Final = "other"


def fault_of(error: BaseException) -> str:
    """Return the kind of a driver's error."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    # PyMySQL's errors have both, and the state is the same for many of them.
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code is None:
        code = number
    if code in _DEADLOCKS:
        return Fault.DEADLOCK
    if code in _READ_ONLY or number in _READ_ONLY:
        return Fault.READ_ONLY
    if code in _DENIED or number in _DENIED:
        return Fault.DENIED
    names = {kind.__name__ for kind in type(error).__mro__}
    if not names.isdisjoint(_CONSTRAINTS):
        return Fault.CONSTRAINT
    # A class of SQLSTATE for a wrong statement comes as an OperationalError of some drivers.
    if not names.isdisjoint(_CONNECTION) and str(code)[:2] not in ("0A", "22", "42"):
        return Fault.CONNECTION
    return Fault.OTHER


def assessment_of(reward: Feedback) -> Any:
    """Return MLflow's assessment of a reward."""
    from mlflow.entities import AssessmentSource
    from mlflow.entities import Feedback as MlflowFeedback

    moment = reward.time_ns // 1_000_000
    assessment = MlflowFeedback(
        name=reward.name,
        value=reward.value,
        source=AssessmentSource(source_type="CODE", source_id=REWARD_SOURCE),
        rationale=reward.rationale or None,
        trace_id=reward.trace_id,
        create_time_ms=moment,
        last_update_time_ms=moment,
        metadata=reward.metadata,
    )
    assessment.assessment_id = reward.assessment_id
    return assessment


def mlflow_version() -> tuple[int, ...]:
    """Return the first two numbers of the installed version."""
    import mlflow

    return tuple(int(part) for part in mlflow.__version__.split(".")[:2])


def import_mlflow() -> tuple[Any, tuple[int, ...]]:
    """Import what the store needs of MLflow; return the package and its version."""
    try:
        import mlflow
        import mlflow.tracing.client
        import mlflow.tracking
    except ImportError as error:
        raise configuration_error(
            f"an SQL tracking URI needs mlflow in this process ({error}): {install_line('mlflow')}"
        ) from error
    version = mlflow_version()
    if version < FIRST_VERSION:
        needed = ".".join(str(part) for part in FIRST_VERSION)
        raise configuration_error(
            f"mlflow {mlflow.__version__} is installed; writing traces to a database needs {needed} or later "
            f"({install_line('mlflow')}), or give MLFLOW_TRACKING_URI a server, which may be older"
        )
    try:
        import mlflow.store.tracking.sqlalchemy_store
    except ImportError as error:
        raise configuration_error(
            f"an SQL tracking URI needs sqlalchemy and alembic ({error}): {install_line('mlflow')}"
        ) from error
    return mlflow, version


def attempt(call: Callable[[], _Result]) -> _Result:
    """Call MLflow; raise its exceptions as `AttemptError`."""
    try:
        return call()
    except (AttemptError, OSError):
        raise
    except Exception as error:
        raise explained(error) from error


def explained(error: Exception) -> AttemptError:
    """Return the error of MLflow's or the database's, with what delivery does next."""
    reason = reason_of(error)
    code = str(getattr(error, "error_code", ""))
    faults = {fault_of(each) for each in _causes(error)}
    if is_broken(reason) or Fault.DENIED in faults:
        return configuration_error(f"{reason}: MLFLOW_TRACKING_URI must be a database that this process may write to")
    if "max_allowed_packet" in reason:
        return AttemptError(Outcome(Verdict.TOO_LARGE, reason))
    if code in _PASSING or Fault.READ_ONLY in faults or type(error).__name__ in ("OperationalError", "InterfaceError"):
        return AttemptError(Outcome(Verdict.RETRY, reason))
    if _lacks_a_character(error, reason):
        reason = f"{reason}: the database needs the encoding UTF8; of MySQL and MariaDB, the character set utf8mb4"
    if code in _INVALID or isinstance(error.__cause__, (OverflowError, TypeError, ValueError)):
        return AttemptError(Outcome(Verdict.REFUSED, reason))
    if "out-of-date" in str(error) or "db upgrade" in str(error):
        return configuration_error(f"{_OTHER_VERSION}: {reason[:200]}")
    return AttemptError(
        Outcome(Verdict.UNEXPLAINED, reason),
        is_missing=code == "RESOURCE_DOES_NOT_EXIST",
        is_taken=code == "RESOURCE_ALREADY_EXISTS",
    )


def is_broken(reason: str) -> bool:
    """Return True if SQLite reports that a file is read-only, damaged, or of another format."""
    return any(words in reason for words in ("readonly database", "disk image is malformed", "is not a database"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and those below it: MLflow wraps SQLAlchemy's, which wraps the driver's."""
    below: BaseException | None = error
    while below is not None:
        yield below
        below = getattr(below, "orig", None) or below.__cause__


def _lacks_a_character(error: BaseException, reason: str) -> bool:
    """Return True if a text doesn't fit into the database's encoding."""
    encodings = {each.encoding for each in _causes(error) if isinstance(each, UnicodeEncodeError)}
    return bool(encodings - {"utf-8"}) or "Incorrect string value" in reason or "no equivalent in encoding" in reason


def reason_of(error: Exception) -> str:
    """Return an error's first line, for the log."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
