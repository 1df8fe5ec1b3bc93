"""Assessments put into a SQLite database of MLflow's in one transaction: most of what one takes is its two ends.

Other databases lock the rows of traces, which whoever writes spans locks in another order.
"""

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

    Raises:
        Exception: What the store raises; then too none of them is stored.
    """
    if store.engine.dialect.name != "sqlite":
        return False
    # A copy, for the store may be that of other threads too, which want transactions of their own.
    store = copy.copy(store)
    with store.ManagedSessionMaker(read_only=False) as session:
        transaction = session.get_transaction()
        store.ManagedSessionMaker = lambda *_args, **_options: nullcontext(session)
        for assessment in assessments:
            store.create_assessment(assessment)
        is_whole = session.get_transaction() is transaction
        if not is_whole:
            # The store has begun anew on its way: what came before that is gone.
            session.rollback()
    return is_whole
