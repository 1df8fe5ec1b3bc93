"""Record what training makes of a trajectory: its advantage, its fate with the reason, and measures of its tokens.

The trainer's process holds no trajectories. It collects their facts by key and sends them to the agent loop's workers,
without waiting for them; the worker that ran a trajectory annotates it, by the carrier that it remembers. A row of the
v1 trainer has its key. The old trainer reorders its rows, so there a row is known by its content.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.counts import lost_annotations
from otel_rollout.guard.log_once import warn_once
from otel_rollout.hooks import Call, Hook, Observer, after
from otel_rollout.hooks.carrier import extract
from otel_rollout.hooks.guard import call_library
from otel_rollout.hooks.verl.identity import Row, forget_oldest
from otel_rollout.hooks.verl.late_rewards import key_of, managers, take_carrier, workers
from otel_rollout.record import runtime
from otel_rollout.record.annotate import annotate

NO_TOKENS: Final = "no token counts, by rollout correction or the agent loop's mask"
NO_UPDATE: Final = "without an update of the actor that we saw, as in the critic's warm-up"
SURPLUS: Final = "more groups than the batch takes"
FAILED: Final = "a rollout of the group failed"

_ROWS: Final = "_otel_rollout_rows"
_COLUMNS: Final = ("responses", "rm_scores")
"""Columns that distinguish a group's rows, and that no trainer changes."""
_MAX_ROWS: Final = 100_000
_MAX_SENT: Final = 64
_SECONDS_AT_THE_END: Final = 5.0
_LOST: Final = "verl: the advantage and fate of some trajectories are lost: %s"


@dataclass(slots=True)
class _Sums:
    """Sums over the tokens of a trajectory that its masks leave."""

    tokens: int = 0
    advantage: float = 0.0
    gap: float | None = None
    highest_gap: float = 0.0
    weight: float | None = None

    def facts(self) -> dict[str, Any]:
        """Return them as arguments of `annotate`."""
        if not self.tokens:
            return {}
        facts: dict[str, Any] = {"advantage": self.advantage / self.tokens}
        if self.gap is not None:
            facts[semconv.LOG_PROB_GAP] = self.gap / self.tokens
            facts[semconv.LOG_PROB_GAP_MAX] = self.highest_gap
        if self.weight is not None:
            facts[semconv.IMPORTANCE_WEIGHT] = self.weight / self.tokens
        return facts


_waiting: Final[dict[str, _Sums]] = {}
"""Trajectories of the batch whose advantages are known, until the actor's update."""
_entropies: Final[dict[str, tuple[float, int]]] = {}
"""The sum of the tokens' entropies, and their number, in the same batch."""
_padding: Final[set[str]] = set()
"""Rows of the same batch that only fill it up."""
_sent: Final[deque[tuple[int, Any]]] = deque(maxlen=_MAX_SENT)
"""The facts that were sent and are not yet confirmed: the number of trajectories, and each worker's answer."""

_keys: Final[ContextVar[Sequence[str | None] | None]] = ContextVar("otel-rollout-verl-log-probs", default=None)
_eviction: Final[ContextVar[_Eviction | None]] = ContextVar("otel-rollout-verl-eviction", default=None)


# --- the old trainer's rows


def remember_rows(manager: Any, uids: Sequence[str], rows: Sequence[Row], output: Any) -> None:
    """Note which trajectories a training batch's rows are, by their content."""
    if len(rows) != len(output):
        return
    known = vars(manager).setdefault(_ROWS, OrderedDict())
    columns = [name for name in _COLUMNS if name in output.batch]
    for uid, row, content in zip(uids, rows, _contents(output.batch, columns), strict=True):
        known.setdefault((uid, *columns, content), deque()).append(key_of(False, uid, row.rollout_n))
    forget_oldest(known, _MAX_ROWS)


def _keys_of_rows(data: Any, *, forget: bool) -> list[str | None]:
    """Return each row's key; of rows with the same content, which have the same facts too, in any order."""
    uids = [str(uid) for uid in data.non_tensor_batch["uid"]]
    for rows in (vars(manager).get(_ROWS) for manager in managers):
        if not rows:
            continue
        columns = next(reversed(rows))[1:-1]
        names = [(uid, *columns, content) for uid, content in zip(uids, _contents(data.batch, columns), strict=True)]
        found = {name: deque(rows[name]) for name in names if name in rows}
        keys = [found[name].popleft() if found.get(name) else None for name in names]
        if any(keys):
            for name in names if forget else ():
                rows.pop(name, None)
            return keys
    return [None] * len(uids)


def _contents(batch: Any, columns: Iterable[str]) -> list[int]:
    import torch  # type: ignore[import-not-found, unused-ignore]  # installed with verl

    found = [batch[name].detach().cpu().contiguous().view(torch.uint8).numpy() for name in columns]
    return [hash(tuple(row.tobytes() for row in rows)) for rows in zip(*found, strict=True)]


# --- what the trainer's process collects


def _observe_v1_advantages(call: Call) -> Observer | None:
    """Observe the v1 trainer's advantages, of rows with the keys `{uid}_{session}_{output}`."""
    return _Advantages(_trajectories(call.arguments["batch_keys"])) if managers else None


def _observe_advantages(call: Call) -> Observer | None:
    """Observe the old trainer's advantages."""
    if not any(_ROWS in vars(manager) for manager in managers):
        return None
    return _Advantages(_keys_of_rows(call.arguments["data"], forget=True))


class _Advantages(Observer):
    """A computation of a batch's advantages."""

    def __init__(self, keys: Sequence[str | None]) -> None:
        self._keys = keys

    def end(self, result: Any) -> None:
        """Keep the means over each trajectory's tokens until the actor's update."""
        import torch

        _report_rest()
        columns = result.batch
        mask = columns["response_mask"] > 0

        def masked(tensor: Any) -> Any:
            return torch.where(mask, tensor.detach().double(), 0.0)

        old, rollout, weights = (
            columns.get(name, None) for name in ("old_log_probs", "rollout_log_probs", "rollout_is_weights")
        )
        gaps = None if old is None or rollout is None else masked((old - rollout).abs())
        tokens, advantages = mask.sum(-1).tolist(), masked(columns["advantages"]).sum(-1).tolist()
        sums = None if gaps is None else list(zip(gaps.sum(-1).tolist(), gaps.amax(-1).tolist(), strict=True))
        weight = None if weights is None else masked(weights).sum(-1).tolist()
        for row, key in enumerate(self._keys):
            if key is None:
                continue
            each = _waiting.setdefault(key, _Sums())
            each.tokens += tokens[row]
            each.advantage += advantages[row]
            if sums is not None:
                each.gap = (each.gap or 0.0) + sums[row][0]
                each.highest_gap = max(each.highest_gap, sums[row][1])
            if weight is not None:
                each.weight = (each.weight or 0.0) + weight[row]


class _Update(Observer):
    """`_update_actor`: its batch's trajectories are trained."""

    def __init__(self, call: Call) -> None:
        batch = call.arguments["batch"]
        # The old trainer's batch has no keys: it is the one whose advantages were last computed.
        self._keys = _v1_keys(batch) if hasattr(batch, "tags") else list(_waiting)

    def end(self, result: Any) -> None:
        """Report its trajectories as trained."""
        _report_trained(key for key in dict.fromkeys(self._keys) if key is not None)


def _observe_update(call: Call) -> Observer | None:
    return _Update(call) if managers else None


def _report_trained(keys: Iterable[str], reason: str | None = None) -> None:
    facts = {}
    for key in keys:
        sums = _waiting.pop(key, None)
        entropy, tokens = _entropies.pop(key, (0.0, 0))
        is_empty = sums is not None and not sums.tokens
        facts[key] = {
            **({} if sums is None else sums.facts()),
            **({semconv.ENTROPY: entropy / tokens} if tokens else {}),
            "fate": "filtered" if is_empty else "trained",
            **_reason(NO_TOKENS if is_empty else reason),
        }
    _report(facts)


def _report_rest() -> None:
    """Report trajectories that had an advantage, and no update of the actor."""
    if _waiting:
        _report_trained(list(_waiting), NO_UPDATE)


def _observe_v1_log_probs(call: Call) -> Observer | None:
    """Observe the v1 trainer's log-probs: `agg_loss` inside sees the entropies, without keys."""
    return Observer(variable=_keys, value=_v1_keys(call.arguments["batch"])) if managers else None


def _note_v1_entropy(call: Call, result: Any) -> None:
    keys = _keys.get()
    if keys is not None:
        _note_entropy(keys, call.arguments["loss_mat"], call.arguments["loss_mask"])


def _note_entropies(call: Call, result: Any) -> None:
    """Note the entropies that the old trainer's log-probs come with."""
    batch = call.arguments["batch"]
    if any(_ROWS in vars(manager) for manager in managers):
        _note_entropy(_keys_of_rows(batch, forget=False), result[0].batch["entropys"], batch.batch["response_mask"])


def _note_entropy(keys: Sequence[str | None], entropies: Any, mask: Any) -> None:
    import torch

    _entropies.clear()
    sums = torch.where(mask > 0, entropies.detach().double(), 0.0).sum(-1).tolist()
    for key, entropy, tokens in zip(keys, sums, (mask > 0).sum(-1).tolist(), strict=True):
        if key is not None:
            known = _entropies.get(key, (0.0, 0))
            _entropies[key] = (known[0] + entropy, known[1] + tokens)


# --- what the v1 trainer's replay buffer throws away


class _Eviction(Observer):
    """`ReplayBuffer._evict_terminal_groups`: the groups by reason, for `_clear_groups` inside."""

    variable = _eviction

    def __init__(self, call: Call) -> None:
        arguments = call.arguments
        self._buffer, self._step, self._partition = call.receiver, arguments["global_steps"], arguments["partition_id"]
        self._stale, self._filtered, self._failed, *_ = arguments["eviction_reasons"]

    def fate_of(self, uid: str) -> tuple[str, str]:
        """Return a group's fate and its reason; of several reasons, the first that verl names."""
        buffer = self._buffer
        if uid in self._stale:
            versions = self._step - buffer.prompt_global_steps[self._partition].get(uid, self._step) + 1
            return "stale", f"{versions} versions of the weights, {buffer.max_off_policy_threshold} allowed"
        if uid in self._filtered:
            value = buffer._dapo_classification_cache[self._partition].get(uid)  # noqa: SLF001 - nowhere else
            return "filtered", f"{buffer.filter_groups_metric} is {value:g} in the whole group"
        return "failed", FAILED


def _observe_clearing(call: Call) -> Observer | None:
    """Observe `ReplayBuffer._clear_groups`, by which every group that is thrown away leaves the buffer."""
    partition, uids = call.arguments["partition_id"], call.arguments["uids"]
    if not managers or partition == "val" or not uids:
        return None
    eviction = _eviction.get()
    facts = {}
    for row in call.receiver.partitions[partition]:
        uid = row.split("_")[0]
        if uid in uids:
            fate, reason = ("surplus", SURPLUS) if eviction is None else eviction.fate_of(uid)
            facts[_trajectory(row)] = {"fate": fate, **_reason(reason)}
    return _Clearing(facts)


class _Clearing(Observer):
    def __init__(self, facts: dict[str, dict[str, Any]]) -> None:
        self._facts = facts

    def end(self, result: Any) -> None:
        _report(self._facts)


def _reason(reason: str | None) -> dict[str, str]:
    return {} if reason is None else {semconv.FATE_REASON: reason}


def _v1_keys(batch: Any) -> list[str | None]:
    """Return the trajectory of each row of a v1 trainer's batch, of `KVBatchMeta`; None for rows that only fill it."""
    _padding.clear()
    _padding.update(row for row, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding"))
    return _trajectories(batch.keys)


def _trajectories(rows: Iterable[str]) -> list[str | None]:
    return [None if row in _padding else _trajectory(row) for row in rows]


def _trajectory(row: str) -> str:
    uid, session, _ = row.rsplit("_", 2)
    return key_of(False, uid, session)


# --- to the workers, and back


class _Fit(Observer):
    """`fit`: the last facts are sent and confirmed before the trainer's process ends."""

    def close(self) -> None:
        _report_rest()
        _entropies.clear()
        _confirm(_SECONDS_AT_THE_END)


def _report(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Send the workers facts of trajectories, by key."""
    if facts:
        _confirm(0)
        call_library("verl fates", _LOST, _send, facts)


def _send(facts: Mapping[str, Mapping[str, Any]]) -> None:
    text = orjson.dumps(facts)
    _sent.append((len(facts), [worker.__ray_call__.remote(_record, text) for worker in workers()]))


def _record(worker: Any, text: bytes) -> int:
    """Annotate the trajectories that ran here; return the number of those that are known here, if only as untraced."""
    known = 0
    for key, facts in orjson.loads(text).items():
        carrier = take_carrier(worker, key)
        known += carrier is not None
        if carrier:
            with extract(orjson.loads(carrier)):
                annotate(**facts)
    pipeline = runtime.pipeline
    if known and pipeline is not None:
        pipeline.request_flush()
    return known


def _confirm(seconds: float) -> None:
    """Count the trajectories whose facts no worker could record, as far as the workers have answered in this time."""
    if _sent:
        call_library("verl fates", _LOST, _count_unknown, seconds)


def _count_unknown(seconds: float) -> None:
    import ray  # type: ignore[import-not-found, unused-ignore]  # installed with verl

    for _ in range(len(_sent)):
        sent, answers = _sent[0]
        done, _ = ray.wait(answers, num_returns=len(answers), timeout=seconds)
        if len(done) < len(answers):
            return
        _sent.popleft()
        lost = sent - sum(ray.get(answers))
        if lost > 0:
            lost_annotations["unknown trajectory"] += lost
            warn_once("verl unknown fates", _LOST, f"{lost} that no worker remembers")


_V1: Final = "verl.trainer.ppo.v1.trainer_base"
_BUFFER: Final = "verl.trainer.ppo.v1.replay_buffer"
_OLD: Final = "verl.trainer.ppo.ray_trainer"
_ADVANTAGES: Final = "advantages are not recorded"
_TRAINED: Final = "the fate of trained trajectories is not recorded"
_ENTROPIES: Final = "entropies are not recorded"
_THROWN_AWAY: Final = "the fate of trajectories that the replay buffer throws away is not recorded"
_AT_THE_END: Final = "the last step's fates may be lost at the end"


def _hook(module: str, target: str, lost: str, observer: Any, *needs: str) -> Hook:
    return Hook(module, target, lost, observer, needs=needs, while_off=True)


HOOKS: Final = (
    _hook(_V1, "compute_advantage_for_multi_trajectories", _ADVANTAGES, _observe_v1_advantages, "batch_keys"),
    _hook(_V1, "PPOTrainer._compute_old_log_prob", _ENTROPIES, _observe_v1_log_probs, "batch"),
    _hook(_V1, "agg_loss", _ENTROPIES, after(_note_v1_entropy), "loss_mat", "loss_mask"),
    _hook(_V1, "PPOTrainer._update_actor", _TRAINED, _observe_update, "batch"),
    _hook(_V1, "PPOTrainer.fit", _AT_THE_END, lambda _: _Fit()),
    _hook(
        _BUFFER,
        "ReplayBuffer._evict_terminal_groups",
        "the reasons of fates are not recorded",
        _Eviction,
        *("global_steps", "partition_id", "eviction_reasons"),
    ),
    _hook(_BUFFER, "ReplayBuffer._clear_groups", _THROWN_AWAY, _observe_clearing, "partition_id", "uids"),
    _hook(_OLD, "compute_advantage", _ADVANTAGES, _observe_advantages, "data"),
    _hook(_OLD, "RayPPOTrainer._compute_old_log_prob", _ENTROPIES, after(_note_entropies), "batch"),
    _hook(_OLD, "RayPPOTrainer._update_actor", _TRAINED, _observe_update, "batch"),
    _hook(_OLD, "RayPPOTrainer.fit", _AT_THE_END, lambda _: _Fit()),
)
