"""Post a file as OTLP to an MLflow, and print the status of the answer: ADDRESS FILE."""

import sys
import urllib.error
import urllib.request
from pathlib import Path

address, file = sys.argv[1:]
request = urllib.request.Request(
    f"{address}/v1/traces",
    data=Path(file).read_bytes(),
    headers={"content-type": "application/x-protobuf", "x-mlflow-experiment-id": "0"},
)
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        status = answer.status
except urllib.error.HTTPError as error:
    status = error.code
sys.stdout.write(str(status))
