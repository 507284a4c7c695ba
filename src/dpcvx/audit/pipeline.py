"""Check which steps of a scikit-learn pipeline read records outside the privacy guarantee."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpcvx.errors import Incompatible, WrongType
from dpcvx.words import align_columns

__all__ = ["PipelineReport", "PipelineStep", "check_pipeline"]

COVERED, STATELESS, DECLARED = "covered", "stateless", "declared"
READS, UNKNOWN = "reads records", "cannot know"
MOST_ATTRIBUTES = 8  # fitted attributes that a reason names
OUTSIDE = (
    "The guarantee of a private estimator starts at the rows given to its fit. Errors that other steps raise "
    "about cells, such as missing ones, and scores that are computed on private rows (score, cross_validate, "
    "sklearn.metrics) are not covered either; dpcvx.private_score is."
)

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class PipelineStep:
    """One object of a pipeline and whether its fit reads records outside the guarantee."""

    place: str  # where it is: names of steps and parameters, joined by dots
    kind: str  # name of its class
    verdict: str  # "covered", "stateless", "declared", "reads records" or "cannot know"
    reason: str

    @property
    def safe(self) -> bool:
        """Whether its fit publishes nothing about records except what a private estimator released."""
        return self.verdict in (COVERED, STATELESS, DECLARED)


@dataclass(frozen=True)
class PipelineReport:
    """Result of `check_pipeline`, a table when printed."""

    steps: tuple[PipelineStep, ...]

    @property
    def safe(self) -> bool:
        """Whether every step is covered, stateless or declared."""
        return all(step.safe for step in self.steps)

    @property
    def unsafe(self) -> tuple[PipelineStep, ...]:
        """Steps that read records, or that may do so."""
        return tuple(step for step in self.steps if not step.safe)

    def require(self) -> PipelineReport:
        """Return the report, or raise `Incompatible` if a step is not safe."""
        if not self.safe:
            found = "; ".join(f"{step.place} ({step.kind}): {step.reason}" for step in self.unsafe)
            raise Incompatible(
                f"This pipeline is not private as a whole; change or remove these steps. {found}"
            )
        return self

    def __str__(self) -> str:
        rows = [("step", "class", "verdict")]
        rows += [(step.place, step.kind, step.verdict) for step in self.steps]
        lines = align_columns(rows, left=(0, 1, 2))
        for step in self.unsafe:
            words = f"{step.place}: {step.reason}"
            lines += textwrap.wrap(words, 108, initial_indent="- ", subsequent_indent="  ")
        head = "No step reads records outside the guarantee." if self.safe else "NOT PRIVATE as a whole."
        return "\n".join([head, "", *lines, "", *textwrap.wrap(OUTSIDE, 110)])


def check_pipeline(pipeline: Any) -> PipelineReport:
    """Name the steps of a pipeline that read records when they are fitted, outside any privacy guarantee.

    A private estimator protects the rows that reach its ``fit``. Other steps are not private: a
    ``MinMaxScaler`` in front of it publishes the largest cell of every column, which is one person's. Such
    steps are found here from classes and parameters, in pipelines, feature unions, column transformers,
    searches and other estimators that contain estimators, fitted or not. No data are needed, and none are
    read.

    Each object is "covered" (a private estimator of dpcvx), "stateless" (its fit stores nothing that depends
    on cells), "declared" (its parameters give what it would otherwise read), "reads records", or "cannot
    know": functions and classes that are not part of scikit-learn.

    Parameters
    ----------
    pipeline : estimator
        Pipeline, transformer or other estimator with scikit-learn's interface.

    Returns
    -------
    PipelineReport
        With ``safe``, ``steps``, ``unsafe``, and ``require()``, which raises an error unless it is safe.
    """
    if isinstance(pipeline, type) or not hasattr(pipeline, "fit"):
        raise WrongType(
            f"pipeline is {type(pipeline).__name__!r}; it must be an estimator, for instance "
            "make_pipeline(Normalizer(), PrivateLasso(...))."
        )
    return PipelineReport(tuple(_walk(type(pipeline).__name__.lower(), pipeline)))


def _walk(place: str, step: Any) -> Iterator[PipelineStep]:
    verdict, reason = _judge(step)
    yield PipelineStep(place, type(step).__name__, verdict, reason)
    for name, child in _children(step):
        yield from _walk(f"{place}.{name}", child)


def _children(step: Any) -> Iterator[tuple[str, Any]]:
    """Estimators among the parameters, also in lists such as those of pipelines and column transformers."""
    for name, value in _parameters(step).items():
        if _is_estimator(value):
            yield name, value
        elif isinstance(value, list | tuple):
            for place, entry in enumerate(value):
                if _is_estimator(entry):
                    yield f"{name}[{place}]", entry
                elif isinstance(entry, list | tuple):
                    yield from ((str(entry[0]), part) for part in entry if _is_estimator(part))


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "fit") and not isinstance(value, type)


def _parameters(step: Any) -> dict[str, Any]:
    return dict(step.get_params(deep=False)) if hasattr(step, "get_params") else {}


def _judge(step: Any) -> tuple[str, str]:
    kind, module = type(step), type(step).__module__
    if module.partition(".")[0] == "dpcvx":
        return _private(step)
    if module.partition(".")[0] != "sklearn":
        return UNKNOWN, "it is not part of scikit-learn; only its author can say what its fit stores"
    parameters = _parameters(step)
    if kind.__name__ in RULES:
        verdict, condition, advice = RULES[kind.__name__]
        if condition(parameters):
            return verdict, ""
        found = (advice, f"as it is, {_published(step)}")
        return (UNKNOWN, advice) if kind.__name__ == "FunctionTransformer" else (READS, "; ".join(found))
    if kind.__name__ in LOOKS:
        return READS, LOOKS[kind.__name__]
    if any(True for _ in _children(step)):
        return READS, (
            "charges of the private estimators inside add up, and whatever else it computes from rows is not "
            f"noised; {_published(step)}"
        )
    return READS, f"its fit is not private; {_published(step)}"


def _private(step: Any) -> tuple[str, str]:
    if _parameters(step).get("random_state") is not None:
        return READS, "random_state is set: whoever knows the seed can subtract the noise"
    return COVERED, ""


def _published(step: Any) -> str:
    """Say which fitted attributes an object has, or by its documentation will have."""
    names = [name for name in vars(step) if name.endswith("_") and not name.startswith("_")]
    if not names:
        text = inspect.getdoc(type(step)) or ""
        listed = text.partition("\nAttributes\n")[2]
        names = re.findall(r"^(\w+[a-zA-Z0-9]_) :", listed, flags=re.MULTILINE)
    public = ("n_features_in_", "feature_names_in_", "n_features_", "n_outputs_")
    names = [name for name in names if name not in public]
    if not names:
        return "what it stores is published with it"
    more = ", ..." if len(names) > MOST_ATTRIBUTES else ""
    return f"{', '.join(names[:MOST_ATTRIBUTES])}{more} would be published with it"


def _always(parameters: Parameters) -> bool:
    return True


def _given(name: str) -> Callable[[Parameters], bool]:
    return lambda parameters: parameters[name] is not None


def _cell_by_cell(parameters: Parameters) -> bool:
    """Whether functions map every cell by itself, and are not compared on records by check_inverse."""
    functions = (parameters["func"], parameters["inverse_func"])
    if not all(each is None or _is_elementwise(each) for each in functions):
        return False
    return None in functions or not parameters["check_inverse"]


def _is_elementwise(function: Any) -> bool:
    import numpy as np

    return isinstance(function, np.ufunc) and function.nin == 1 and function.signature is None


def _named_columns(parameters: Parameters) -> bool:
    columns = [entry[2] for entry in parameters["transformers"]]
    return not any(callable(each) for each in columns) and parameters["sparse_threshold"] in (0, 1)


# Classes of scikit-learn whose fit stores nothing that depends on a cell, under a condition on parameters;
# otherwise the advice is given. tests/interface/test_pipelines.py fits all of them to neighbouring tables.
RULES: dict[str, tuple[str, Callable[[Parameters], bool], str]] = {
    **dict.fromkeys(
        (
            "AdditiveChi2Sampler",
            "Binarizer",
            "FeatureHasher",
            "GaussianRandomProjection",
            "HashingVectorizer",
            "Normalizer",
            "PolynomialCountSketch",
            "PolynomialFeatures",
            "SkewedChi2Sampler",
            "SparseRandomProjection",
        ),
        (STATELESS, _always, ""),
    ),
    "FeatureUnion": (STATELESS, _always, ""),
    "Pipeline": (
        STATELESS,
        lambda p: p["memory"] is None,
        "memory= stores transformed rows on disk: leave it out",
    ),
    "ColumnTransformer": (
        DECLARED,
        _named_columns,
        "name the columns instead of selecting them by a function or type, and give sparse_threshold=0, as "
        "otherwise the share of zeros decides between dense and sparse rows",
    ),
    "TransformedTargetRegressor": (
        STATELESS,
        lambda p: _cell_by_cell(p) and (p["transformer"] is None or not p["check_inverse"]),
        "give NumPy ufuncs as func and inverse_func, or a transformer, and check_inverse=False",
    ),
    "FunctionTransformer": (
        STATELESS,
        _cell_by_cell,
        "its function gets all rows at once, and only you can know that the result of a row depends on that "
        "row alone; a NumPy ufunc such as numpy.log1p, without check_inverse, is known to",
    ),
    "OneHotEncoder": (
        DECLARED,
        lambda p: (
            p["categories"] != "auto"
            and p["handle_unknown"] == "ignore"
            and p["min_frequency"] is None
            and p["max_categories"] is None
        ),
        'give categories=[...], handle_unknown="ignore", and no min_frequency or max_categories',
    ),
    "OrdinalEncoder": (
        DECLARED,
        lambda p: (
            p["categories"] != "auto"
            and p["handle_unknown"] == "use_encoded_value"
            and p["min_frequency"] is None
            and p["max_categories"] is None
        ),
        'give categories=[...], handle_unknown="use_encoded_value", and no min_frequency or max_categories',
    ),
    "SimpleImputer": (
        DECLARED,
        lambda p: (
            p["strategy"] == "constant"
            and p["fill_value"] is not None
            and p["keep_empty_features"]
            and not p["add_indicator"]
        ),
        'give strategy="constant", fill_value=..., keep_empty_features=True and no add_indicator, or leave '
        "missing cells to the private estimator",
    ),
    "SelectFromModel": (
        STATELESS,
        lambda p: not callable(p["max_features"]),
        "give max_features as a number, since a function of it gets all rows",
    ),
    "MissingIndicator": (DECLARED, lambda p: p["features"] == "all", 'give features="all"'),
    "SparseCoder": (
        DECLARED,
        lambda p: p["transform_algorithm"] == "threshold",
        'give transform_algorithm="threshold"; the others warn of rows that they fail on',
    ),
    "RBFSampler": (STATELESS, lambda p: p["gamma"] != "scale", "give gamma as a number"),
    "SplineTransformer": (
        DECLARED,
        lambda p: not isinstance(p["knots"], str) and p["extrapolation"] not in ("error",),
        'give knots as an array, and an extrapolation other than "error"',
    ),
    "CountVectorizer": (DECLARED, _given("vocabulary"), "give vocabulary=..., or use HashingVectorizer"),
    "TfidfVectorizer": (
        DECLARED,
        lambda p: p["vocabulary"] is not None and not p["use_idf"],
        "give vocabulary=... and use_idf=False, or use HashingVectorizer",
    ),
    "TfidfTransformer": (STATELESS, lambda p: not p["use_idf"], "give use_idf=False"),
}

_CHOICE = (
    "its scores on private rows are not noised, and what it chooses and lists reveals them; "
    "dpcvx.PrivateSearchCV searches within a budget"
)
# Classes that look at rows beyond the estimators inside them, and how.
LOOKS = {
    **dict.fromkeys(
        ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"), _CHOICE
    ),
    **dict.fromkeys(
        ("RFECV", "SequentialFeatureSelector", "TunedThresholdClassifierCV"),
        "it chooses by scores on private rows, which are not noised",
    ),
    "CalibratedClassifierCV": "it fits its calibration to private rows without noise, and fits its estimator "
    "several times",
    **dict.fromkeys(
        ("StackingClassifier", "StackingRegressor"),
        "its final estimator is fitted to predictions for the same rows, and its estimators several times",
    ),
    **dict.fromkeys(
        ("BaggingClassifier", "BaggingRegressor"),
        "it draws rows with replacement, so that one record is several rows of a fit, and fits many times",
    ),
    **dict.fromkeys(
        ("AdaBoostClassifier", "AdaBoostRegressor"), "it weights rows by errors that are not noised"
    ),
    "PatchExtractor": "it makes several rows of one record, and a private estimator protects one row",
}
