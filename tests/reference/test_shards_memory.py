"""What a process holds itself does not grow with the records that it sums."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from pathlib import Path
import numpy as np
from dpcvx.data import GradientSum, ResidualBound
from dpcvx.losses import Logistic
from dpcvx.data.shards import open_source
from dpcvx.data.shards.folder import Manifest, Store

def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024

rows, count = 2**20, int(sys.argv[2])
folder = Path(sys.argv[1])
facts = {"values": "int8", "targets": "float64"}
store = Store.create(folder, Manifest({}, None, 20, False, {}, facts, 20, (2**14, 20 * 2**28), 2**14, rows))
for i in range(count):
    rng = np.random.default_rng(i)
    values = rng.integers(-1, 2, size=(rows, 20), dtype=np.int8)
    store.append(rows, {"values": values, "targets": np.where(rng.random((1, rows)) < 0.5, -1.0, 1.0)})
store.finish()
del values
source, bound = open_source(folder, constant=2**14), ResidualBound(2**20, 2**20)
source.sum(GradientSum(Logistic(), np.ones(21), bound))  # compiles
before = anonymous()
source.sum(GradientSum(Logistic(), np.ones(21), bound))
grown = anonymous() - before

def follow():
    followed = source.follow(Logistic(), 1)
    followed.add(3, 2**20)
    followed.scores(2.0**-44, bound)
    return followed

follow()  # compiles, which takes memory where nothing is in the cache
after = anonymous()
followed = follow()
print(source.n, grown, anonymous() - after)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc")
def test_anonymous_memory_does_not_grow_with_the_records(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "s"), "4"], capture_output=True, text=True, check=True
    )
    n, gradients, margins = map(float, done.stdout.split())
    assert n == 2**22  # 80 MiB of rows and 32 MiB of targets
    assert gradients < 4
    assert margins < 8 * n / 2**20 + 20 + 12  # 8 bytes for each record, a copy of one shard, and code
