"""Print the spans that a Phoenix has in a project, as soon as there are so many: ADDRESS PROJECT COUNT."""

import json
import sys

from tests.servers.phoenix_server import PhoenixApi

address, project, count = sys.argv[1:]
json.dump(PhoenixApi(address).wait_for_spans(project, int(count)), sys.stdout)
