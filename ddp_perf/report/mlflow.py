"""``ddp-perf export mlflow``: a run for each session, in a store of MLflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ddp_perf.core.baseline import instant
from ddp_perf.core.secret import without_passwords
from ddp_perf.errors import ConfigError, HistoryError
from ddp_perf.history.records import SessionRecord

_SESSION = "ddp_perf.session"  # the tag by which a session is not stored twice
_UNSAFE = re.compile(r"[^\w.\- ]")  # in the name of a metric


def log_sessions(records: Sequence[SessionRecord], uri: str) -> None:
    """Log each session that the store lacks, at its own time.

    An experiment is a suite on an accelerator. Raises ConfigError without MLflow, and HistoryError
    if the store cannot be written.
    """
    try:
        import mlflow
    except ImportError:
        raise ConfigError("export mlflow: pip install 'ddp-perf[mlflow]'") from None
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        for record in records:
            _log(client, mlflow.entities.Metric, record)
    except mlflow.MlflowException as error:
        raise HistoryError(without_passwords(f"{uri}: {error.message}")) from None


def _log(client: Any, metric_of: Any, record: SessionRecord) -> None:
    info, where = record.info, record.info.environment
    name = f"ddp-perf/{where.accelerator_key}/{info.suite}"
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    session = f"{where.host} {info.date} {info.started}".replace("'", "_")
    if client.search_runs([experiment], f"tags.`{_SESSION}` = '{session}'"):
        return
    began = int(1000 * instant(info.date).timestamp())
    tags = {"mlflow.source.git.commit": where.commit, "mlflow.source.git.branch": where.branch}
    tags |= {"host": where.host, "torch": where.torch, "injections": " ".join(info.injections)}
    present = {name: value for name, value in tags.items() if value}
    run = client.create_run(experiment, start_time=began, tags=present, run_name=info.date)
    values = [
        metric_of(f"{_UNSAFE.sub('_', case.case_id)}/{figure.metric}", figure.value, began, 0)
        for case in record.cases
        for figure in case.figures
        if figure.is_sound
    ]
    for first in range(0, len(values), 1000):  # servers take no more in one request
        client.log_batch(run.info.run_id, metrics=values[first : first + 1000])
    client.set_terminated(run.info.run_id, end_time=began)
    client.set_tag(run.info.run_id, _SESSION, session)  # last: an interrupted one is logged again
