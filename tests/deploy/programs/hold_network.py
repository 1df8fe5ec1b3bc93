"""Make a network with something running on it, say which one, and hold it until this process ends."""

import subprocess
import sys
import time

from tests.deploy.network import Network

with Network({"machine": []}, {}) as network:
    subprocess.Popen(network.command("machine", ["sleep", "600"]))
    while network.run("machine", ["sh", "-c", "grep -l sleep /proc/[0-9]*/comm"]).returncode:
        time.sleep(0.05)
    sys.stdout.write(network.run("machine", ["readlink", "/proc/self/ns/net"]).stdout)
    sys.stdout.flush()
    time.sleep(600)
