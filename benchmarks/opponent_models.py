"""AIM and MST of other packages, for query_opponents.py; runs in an environment of its own.

    python benchmarks/opponent_models.py INPUT.npz OUTPUT.npz METHOD

METHOD is "opendp aim", "opendp mst" (OpenDP 0.16 with the extra mbi), "dpmm aim" or "dpmm mst" (dpmm 0.1.9).
INPUT has the codes of the records, the number of levels of each attribute, rho (zCDP, one record more or
less), the attributes of each table that is wanted (-1 pads) and the number of synthetic records. OUTPUT has
the shares of these tables by the fitted model, the synthetic records, and seconds of processor time.
"""

import json
import sys
import time

import numpy as np


def opendp(codes, sizes, rho, method, options):
    """Fitted model of OpenDP, and its attribute names."""
    import opendp.extras.mbi._mst as mst
    import opendp.prelude as dp
    import polars as pl

    # Parts of a budget are the next smaller float there: fifteen of them, summed rounding up, are refused.
    mst.prior = lambda part: part * (1 - 1e-9)
    dp.enable_features("contrib")
    names = [f"a{j}" for j in range(len(sizes))]
    # Cuts instead of keys: keys would add an empty level to every attribute.
    frame = pl.LazyFrame({name: codes[:, j].astype(float) for j, name in enumerate(names)})
    context = dp.Context.compositor(
        data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )
    cuts = {name: [k + 0.5 for k in range(size - 1)] for name, size in zip(names, sizes, strict=True)}
    if (iterations := options.pop("iterations", None)) is not None:
        options["estimator"] = opendp_estimator(iterations)
    algorithm = {"aim": dp.mbi.AIM, "mst": dp.mbi.MST}[method](**options)
    table = context.query(rho=rho).contingency_table(cuts=cuts, algorithm=algorithm).release()
    return table.model, names


def opendp_estimator(iterations):
    """Fit of graphical_model.py in place of that of the package `mbi`, which compiles each new model."""
    import mbi

    from graphical_model import Measured, count_cells, fit

    def size_of(domain, cliques):
        places = [[domain.attributes.index(name) for name in clique] for clique in cliques]
        return 8 * count_cells([domain.size((name,)) for name in domain.attributes], places) / 2**20

    mbi.junction_tree.hypothetical_model_size = size_of  # the same rule, without graphs of another package

    class Fitted(mbi.MarkovRandomField):
        """A model whose tables are those of `graphical_model.Model`."""

        def project(self, attrs):
            names = (attrs,) if isinstance(attrs, str) else tuple(attrs)
            places = tuple(self.domain.attributes.index(name) for name in names)
            return mbi.Factor(self.domain.project(names), self.total * self.fitted.table(places))

        def synthetic_data(self, rows=None, method="round"):
            codes = self.fitted.draw(rows, np.random.default_rng(0))
            return mbi.Dataset(dict(zip(self.domain.attributes, codes.T, strict=True)), self.domain)

    def estimator(domain, loss, *, potentials=None):
        names = list(domain.attributes)
        sizes = [domain.size((name,)) for name in names]
        measured, began = Measured(), time.process_time()
        for each in loss:
            places = [names.index(name) for name in each.clique]
            order = np.argsort(places)
            values = np.asarray(each.noisy_measurement, dtype=float).reshape([sizes[j] for j in places])
            table = tuple(places[k] for k in order)
            measured.add(table, values.transpose(order), float(each.stddev))
        start = {}
        for clique in () if potentials is None else potentials.cliques:
            places = tuple(names.index(name) for name in clique)
            start[places] = np.asarray(potentials.arrays[clique].values)
        model = fit(sizes, measured, start=start, iterations=iterations)
        total = measured.total()
        arrays = {
            tuple(names[j] for j in table): mbi.Factor(
                domain.project(tuple(names[j] for j in table)), potential
            )
            for table, potential in model.potentials.items()
        }
        vector = mbi.CliqueVector(domain, list(arrays), arrays)
        found = Fitted(potentials=vector, marginals=vector, total=total)
        object.__setattr__(found, "fitted", model)
        cells = sum(share.size for share in model.shares)
        print(f"{len(arrays)} tables, {cells} cells: {time.process_time() - began:.1f} s", flush=True)
        return found

    return estimator


def dpmm(codes, sizes, rho, method, options):
    """Fitted generator of dpmm, and its attribute names."""
    import pandas as pd
    from dpmm.models.aim import AIM
    from dpmm.models.mst import MST

    names = [f"a{j}" for j in range(len(sizes))]
    generator = {"aim": AIM, "mst": MST}[method](
        epsilon=1.0,
        delta=1e-9,
        prng=np.random.RandomState(0),
        domain=dict(zip(names, sizes, strict=True)),
        n_jobs=1,
        **{"compress": False, **options},
    )
    generator.rho = rho  # in place of that of epsilon and delta, which are for one record more or less
    generator.sigma = np.sqrt(3 / (2 * rho))  # as MST computes it
    generator.fit(pd.DataFrame(codes.astype(int), columns=names))
    return generator, names


def main(source, result, method, options):
    given = np.load(source)
    codes, sizes = given["codes"], [int(size) for size in given["sizes"]]
    began = time.process_time()
    package, kind = method.split()
    rho, rows = float(given["rho"]), int(given["rows"])
    if package == "opendp":
        model, names = opendp(codes, sizes, rho, kind, options)
    else:
        generator, names = dpmm(codes, sizes, rho, kind, options)
        model = generator.model
    found = {"seconds": time.process_time() - began, "cliques": len(model.cliques)}
    for i, wanted in enumerate(given["tables"]):
        table = model.project(tuple(names[a] for a in wanted if a >= 0))
        values = np.maximum(np.asarray(table.values, dtype=float).ravel(), 0)
        found[f"table{i}"] = values / values.sum()
    if rows:
        drawn = model.synthetic_data(rows=rows) if package == "opendp" else generator.generate(rows)
        columns = drawn.to_dict() if package == "opendp" else drawn
        found["records"] = np.stack([np.asarray(columns[name]) for name in names], axis=1).astype(np.int8)
    np.savez(result, **found)


if __name__ == "__main__":
    main(*sys.argv[1:4], json.loads(sys.argv[4]) if len(sys.argv) > 4 else {})
