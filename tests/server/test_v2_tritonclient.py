"""V2 as `tritonclient` speaks it, over REST and gRPC.

`tritonclient` needs an older protobuf than ours, and runs in an environment of its own: `make
test-v2` creates it.
"""

import os
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent / "v2_client.py"
PYTHON = os.environ.get("TRITONCLIENT_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="needs tritonclient: run make test-v2")
def test_tritonclient_gets_what_it_asks_for(served):
    addresses = [served.addresses["grpc"], served.addresses["rest"].removeprefix("http://")]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [PYTHON, CLIENT, *addresses], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0 and done.stdout == "ok\n", done.stdout + done.stderr
