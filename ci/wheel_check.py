"""Use dpcvx as it was installed, without the repository: the command line, a fit, a file, a statement."""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import dpcvx

assert "site-packages" in dpcvx.__file__, dpcvx.__file__
assert dpcvx.__version__ == version("dpcvx")
assert (Path(dpcvx.__file__).parent / "py.typed").is_file()
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (5_000, 4))
y = (X[:, 0] + 0.3 * rng.normal(size=5_000) > 0).astype(int)
model = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1)).fit(X, y)
assert np.mean(model.predict(X) == y) > 0.8
with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "model.json")
    loaded = dpcvx.load(Path(folder) / "model.json")
assert np.array_equal(loaded.predict(X), model.predict(X))
said = subprocess.run(
    [Path(sys.executable).parent / "dpcvx", "--version"], capture_output=True, text=True, check=True
)
assert said.stdout.strip() == f"dpcvx {dpcvx.__version__}"
print(f"dpcvx {dpcvx.__version__} works on Python {sys.version.split()[0]}")
