"""A record reaches its own row of a shard and nothing else, and rows are inside the declared bounds."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import dpcvx
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.shards import recipe
from dpcvx.noise import SeededGenerator

N, PLACE = 120, 57
HOSTILE = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, -0.0, None, 3.0]
DECLARED = {
    "numbers": {"bounds": (np.array([-1.0, 0.0, 2.0]), np.array([1.0, 1e-300, 1e300]))},
    "norm": {"bounds": (-1e6, 1e6), "data_norm": 2.5},
    "levels": {"bounds": {"a": (0, 1), "b": (-7, 7)}, "categories": {"c": [f"level {i}" for i in range(3)]}},
}


def people(kind, rng, odd=None):
    """Records of a kind; the one at PLACE is odd."""
    columns = {name: rng.uniform(-3, 3, N).tolist() for name in "abc"}
    labels = rng.choice(["no", "yes"], N).tolist()
    if kind == "levels":
        columns["c"] = rng.choice(["level 0", "level 1", "other"], N).tolist()
    if odd is not None:
        for name in "abc":
            text = kind == "levels" and name == "c"
            texts = ["", "\x00", "level 9", "level 2" * 999, None]
            columns[name][PLACE] = texts[odd % 5] if text else HOSTILE[odd]
        labels[PLACE] = ["", "maybe", None, "\N{PILE OF POO}" * 50][odd % 4]
    types = {name: pa.string() if kind == "levels" and name == "c" else pa.float64() for name in "abc"}
    arrays = {name: pa.array(columns[name], types[name]) for name in "abc"}
    return pa.table(arrays | {"label": pa.array(labels, pa.string())})


def made(folder, kind, table):
    shards = dpcvx.from_arrow(table, target="label", classes=("no", "yes"), store=folder, **DECLARED[kind])
    manifest = json.loads((folder / "manifest.json").read_text())
    digests = [file.pop() for shard in manifest["shards"] for file in shard["files"].values()]
    digests.append(manifest.pop("digest"))
    assert len(digests) > 6
    values, targets = (
        np.concatenate([np.load(path) for path in sorted(folder.glob(f"*.{part}.npy"))], axis=axis)
        for part, axis in (("values", 0), ("targets", 1))
    )
    return shards, manifest, values, targets


@pytest.mark.parametrize("kind", DECLARED)
def test_a_record_changes_its_own_row_and_nothing_else(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(recipe, "SHARD_BYTES", 2**9)
    _, manifest, values, targets = made(tmp_path / "plain", kind, people(kind, np.random.default_rng(0)))
    others = np.arange(N) != PLACE
    for odd in range(len(HOSTILE)):
        folder = tmp_path / str(odd)
        _, same, changed, labels = made(folder, kind, people(kind, np.random.default_rng(0), odd))
        assert same == manifest  # sizes, types, declarations, number of shards
        assert np.array_equal(changed[others], values[others])
        assert np.array_equal(labels[:, others], targets[:, others])
        assert labels[0, PLACE] == 0  # no such label
        k_inf, k2 = manifest["limits"]
        assert k_inf == 2**FEATURE_BITS
        assert abs(changed.astype(int)).max() <= k_inf
        assert (changed.astype(int) ** 2).sum(axis=1).max() <= k2
    if kind == "norm":
        assert (values.astype(int) ** 2).sum(axis=1).max() > 0.99 * 2**28  # the bound is reached


@pytest.mark.parametrize("kind", DECLARED)
def test_a_run_on_a_neighbour_asks_the_same_and_differs_by_the_sensitivity(tmp_path, monkeypatch, kind):
    from dpcvx.audit.replay import discrepancies, record, replay

    monkeypatch.setattr(recipe, "SHARD_BYTES", 2**9)
    sources, original = [], dpcvx.Shards.source
    monkeypatch.setattr(
        dpcvx.Shards, "source", lambda self, *given: sources.append(original(self, *given)) or sources[-1]
    )
    for odd in (None, 3, 8):
        shards, *_ = made(tmp_path / str(odd), kind, people(kind, np.random.default_rng(0), odd))
        fitted = dpcvx.PrivateLogisticRegression(epsilon=1.0, n_iter=4, random_state=0).fit(shards)
    plan = fitted.plan_
    first = record(plan, sources[0], SeededGenerator(1))
    for other in sources[1:]:
        second = replay(plan, other, SeededGenerator(2), first)
        assert discrepancies(plan, first, second) == []
        assert any(
            not np.array_equal(a.total, b.total)
            for a, b in zip(first.questions, second.questions, strict=True)
            if a.total is not None
        )
