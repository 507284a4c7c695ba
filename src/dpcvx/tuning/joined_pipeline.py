"""Searches over pipelines: the declarations of a private preprocessor joined with the estimator behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from dpcvx.data.declarations import AUTO
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators import LinearModel
from dpcvx.estimators.preprocessor import PrivatePreprocessor
from dpcvx.words import show

__all__ = ["JoinedPipeline"]

DECLARED = ("bounds", "categories", "schema", "maps")  # what a preprocessor passes on to the estimator


@dataclass(frozen=True, eq=False)
class JoinedPipeline:
    """A pipeline of a preprocessor without an epsilon and an estimator, which is fitted as one estimator.

    Such a preprocessor reads no record: it passes its declarations on. So the estimator with these
    declarations is the same model, and the budget of a search over it covers the pipeline.
    """

    pipeline: Pipeline
    model: Any  # the estimator with the declarations of both steps

    @classmethod
    def of(cls, pipeline: Pipeline) -> JoinedPipeline:
        """Join two steps; pipelines of other steps are refused with the reason."""
        steps = [step for _, step in pipeline.steps]
        if (
            len(steps) != 2
            or not isinstance(steps[0], PrivatePreprocessor)
            or not isinstance(steps[1], LinearModel)
        ):
            raise WrongType(
                "A private search takes an estimator of dpcvx, or a pipeline of a PrivatePreprocessor and "
                "such an estimator: other steps read records outside its budget."
            )
        if steps[0].epsilon is not None:
            raise Incompatible(
                f"The PrivatePreprocessor has epsilon={show(steps[0].epsilon)} of its own. A search fits "
                "every trial anew, and its budget covers fits alone, so the preprocessor would have to be "
                "paid for in each of them. Leave its epsilon out: the fit then releases the numbers of its "
                "maps."
            )
        model, given = clone(steps[1]), {}
        for name in DECLARED:
            value, own = getattr(steps[0], name), getattr(model, name)
            if value is None:
                continue
            if own is not None and not (isinstance(own, str) and own == AUTO):
                raise Incompatible(f"{name} is declared with both steps of the pipeline: declare it once.")
            given[name] = value
        return cls(pipeline, model.set_params(**given))

    def own_grid(self, param_grid: Any) -> tuple[Any, dict[str, str]]:
        """Return a grid of the joined estimator's parameters, and the name in the pipeline of each."""
        grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
        if not isinstance(grids, list | tuple) or not all(isinstance(grid, Mapping) for grid in grids):
            return param_grid, {}  # refused by the search
        outer: dict[str, str] = {}
        for name in (name for grid in grids for name in grid):
            own = self._own_name(str(name))
            if outer.setdefault(own, name) != name:
                raise WrongValue(
                    f"{outer[own]} and {name} are one parameter of the pipeline: give one of them."
                )
        return [{self._own_name(name): values for name, values in grid.items()} for grid in grids], outer

    def _own_name(self, name: str) -> str:
        step, _, parameter = name.partition("__")
        names = [each for each, _ in self.pipeline.steps]
        if (step == names[1] and parameter) or (step == names[0] and parameter in DECLARED):
            return parameter
        raise WrongValue(
            f"{name} cannot be tuned. Parameters of a pipeline are named after its steps: {names[1]}__l2; of "
            f"the preprocessor {', '.join(f'{names[0]}__{each}' for each in DECLARED)}."
        )

    def with_model(self, model: Any, chosen: Mapping[str, Any], X: Any) -> Pipeline:
        """Return a fitted pipeline that ends with a fitted model.

        `chosen`: setting of the model; `X`: rows, of which the names of columns are used.
        """
        (first, preprocessor), (last, _) = self.pipeline.steps
        declared = {name: value for name, value in chosen.items() if name in DECLARED}
        fresh = clone(preprocessor).set_params(**declared)
        return Pipeline([(first, fresh.fit(X)), (last, model)])
