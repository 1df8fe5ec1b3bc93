"""Print the finished traces of an experiment of MLflow, as soon as there are so many: ADDRESS EXPERIMENT COUNT."""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")
from mlflow.tracking import MlflowClient  # noqa: E402

address, name, count = sys.argv[1:]
client = MlflowClient(tracking_uri=address)
deadline = time.monotonic() + 60
while True:
    experiment = client.get_experiment_by_name(name)
    ids = [experiment.experiment_id] if experiment else []
    traces = client.search_traces(locations=ids, max_results=500) if ids else []
    finished = [trace for trace in traces if trace.info.state != "IN_PROGRESS"]
    if len(finished) >= int(count):
        break
    assert time.monotonic() < deadline, f"{len(finished)} of {count} traces finished"
    time.sleep(0.25)
found = [
    {"tags": dict(trace.info.tags), "spans": sorted(span.name.rpartition(".")[2] for span in trace.data.spans)}
    for trace in finished
]
json.dump(found, sys.stdout)
