"""Assessments put into MLflow's database in one transaction: most of what one takes is its own beginning and end."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

__all__ = ["create_assessments"]


def create_assessments(store: Any, assessments: Sequence[Any]) -> bool:
    """Store assessments together; False where they can't be, and then none of them is stored.

    Args:
        store: MLflow's SQLAlchemy store, which is left as it is.
        assessments: MLflow's assessments, with their ids.
    """
    # A copy, for the store may be that of other threads too, which want transactions of their own.
    store = copy.copy(store)
    try:
        with store.ManagedSessionMaker(read_only=False) as session:
            transaction = session.get_transaction()
            store.ManagedSessionMaker = lambda *_args, **_options: nullcontext(session)
            for assessment in assessments:
                store.create_assessment(assessment)
            is_whole = session.get_transaction() is transaction
            if not is_whole:
                # The store has begun anew on its way: what came before that is gone.
                session.rollback()
    except Exception:  # noqa: BLE001, RUF100 - who stores them one by one is told what is wrong with which
        return False
    return is_whole
