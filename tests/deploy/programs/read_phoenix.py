"""Print the spans that a Phoenix has in a project, as soon as there are so many: ADDRESS PROJECT COUNT."""

import json
import sys

from tests.servers.phoenix_server import PhoenixApi

address, project, count = sys.argv[1:]
print(json.dumps(PhoenixApi(address).wait_for_spans(project, int(count))))
