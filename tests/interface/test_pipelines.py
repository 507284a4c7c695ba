"""Steps of pipelines that read records are named; those called safe store nothing that depends on a cell."""

import inspect
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA, SparseCoder
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils import all_estimators

import dpcvx as dp
from dpcvx.audit.pipeline import RULES

LOGISTIC = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=(0, 1))
N = 40
RNG = np.random.default_rng(0)
NUMBERS, LABELS = np.abs(RNG.normal(size=(N, 4))) + 0.1, RNG.integers(0, 2, N)
NUMBER_ROWS = [[50.0, 60.0, 70.0, 80.0], [0.0] * 4, [0.5] * 4, [1e9, 1e-9, 0.0, 1.0]]
LEVELS = RNG.choice(["a", "b"], (N, 2)).astype(object)
LEVEL_ROWS = [["a", "a"], ["zebra", "a"], ["", "b"], [None, np.nan]]
TEXTS = ["some words here", "other words there"] * (N // 2)
TEXT_ROWS = ["", "unheard of", "words words words"]
DICTS = [{"age": 3, "word": 1}] * N
DICT_ROWS = [{}, {"rare": 1e6}]
LABEL_ROWS = [9, -1]

SAFE = {
    "AdditiveChi2Sampler": (AdditiveChi2Sampler(), NUMBERS, NUMBER_ROWS),
    "Binarizer": (Binarizer(), NUMBERS, NUMBER_ROWS),
    "ColumnTransformer": (
        ColumnTransformer(
            [("levels", OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore"), [0])],
            sparse_threshold=0,
        ),
        LEVELS,
        LEVEL_ROWS,
    ),
    "CountVectorizer": (CountVectorizer(vocabulary=["words", "here"]), TEXTS, TEXT_ROWS),
    "FeatureHasher": (FeatureHasher(8), DICTS, DICT_ROWS),
    "FeatureUnion": (make_union(Normalizer(), Binarizer()), NUMBERS, NUMBER_ROWS),
    "FunctionTransformer": (FunctionTransformer(np.log1p), NUMBERS, NUMBER_ROWS),
    "GaussianRandomProjection": (GaussianRandomProjection(2, random_state=0), NUMBERS, NUMBER_ROWS),
    "HashingVectorizer": (HashingVectorizer(n_features=16), TEXTS, TEXT_ROWS),
    "MissingIndicator": (MissingIndicator(features="all"), NUMBERS, [*NUMBER_ROWS, [np.nan] * 4]),
    "Normalizer": (Normalizer(), NUMBERS, NUMBER_ROWS),
    "OneHotEncoder": (
        OneHotEncoder(categories=[["a", "b"]] * 2, handle_unknown="ignore"),
        LEVELS,
        LEVEL_ROWS,
    ),
    "OrdinalEncoder": (
        OrdinalEncoder(categories=[["a", "b"]] * 2, handle_unknown="use_encoded_value", unknown_value=-1),
        LEVELS,
        LEVEL_ROWS,
    ),
    "Pipeline": (make_pipeline(Normalizer(), Binarizer()), NUMBERS, NUMBER_ROWS),
    "PolynomialCountSketch": (PolynomialCountSketch(random_state=0), NUMBERS, NUMBER_ROWS),
    "PolynomialFeatures": (PolynomialFeatures(), NUMBERS, NUMBER_ROWS),
    "RBFSampler": (RBFSampler(random_state=0), NUMBERS, NUMBER_ROWS),
    "SimpleImputer": (
        SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True),
        np.where(np.arange(4) == 3, np.nan, NUMBERS),  # a column that is missing but for one record
        [*NUMBER_ROWS, [np.nan] * 4],
    ),
    "SkewedChi2Sampler": (SkewedChi2Sampler(random_state=0), NUMBERS, NUMBER_ROWS),
    "SparseCoder": (SparseCoder(np.eye(4), transform_algorithm="threshold"), NUMBERS, NUMBER_ROWS),
    "SparseRandomProjection": (SparseRandomProjection(2, random_state=0), NUMBERS, NUMBER_ROWS),
    "SplineTransformer": (
        SplineTransformer(knots=np.linspace(0, 3, 5)[:, None] * np.ones(4)),
        NUMBERS,
        NUMBER_ROWS,
    ),
    "TfidfTransformer": (TfidfTransformer(use_idf=False), NUMBERS, NUMBER_ROWS),
    "TfidfVectorizer": (TfidfVectorizer(vocabulary=["words", "here"], use_idf=False), TEXTS, TEXT_ROWS),
}
# Transformers of scikit-learn that need other input than a table of numbers and labels of two classes.
ONE_COLUMN = ("IsotonicRegression",)
TARGETS_ONLY = ("LabelBinarizer", "LabelEncoder")
TWO_TARGETS = ("CCA", "PLSCanonical", "PLSSVD")
SLOW = ("TSNE",)  # its embedding_ has a row for every record


def replaced(table, row):
    """Return the table with another first record."""
    changed = list(table) if isinstance(table, list) else table.copy()
    changed[0] = row
    return changed


def state(fitted):
    """Return a hash of everything that an estimator stores."""
    return joblib.hash(vars(fitted))


def first(report):
    return report.steps[0]


def test_the_attack_that_the_check_is_for():
    pipeline = make_pipeline(MinMaxScaler(), clone(LOGISTIC).set_params(epsilon=100.0)).fit(NUMBERS, LABELS)
    assert pipeline[0].data_max_[0] == NUMBERS[:, 0].max()  # one person's cell, published with the model
    for each in (pipeline, clone(pipeline)):
        report = dp.check_pipeline(each)
        assert not report.safe
        (step,) = report.unsafe
        assert (step.place, step.kind) == ("pipeline.minmaxscaler", "MinMaxScaler")
        assert "data_max_" in step.reason
        assert "MinMaxScaler" in str(report)
        assert "NOT PRIVATE" in str(report)
        with pytest.raises(dp.Incompatible, match=r"pipeline\.minmaxscaler"):
            report.require()


def test_a_pipeline_of_stateless_steps_is_safe():
    report = dp.check_pipeline(make_pipeline(Normalizer(), FunctionTransformer(np.log1p), LOGISTIC))
    assert report.safe
    assert report.require() is report
    assert [step.verdict for step in report.steps] == ["stateless", "stateless", "stateless", "covered"]
    assert "No step reads records" in str(report)
    assert "cross_validate" in str(report)


@pytest.mark.parametrize("name", SAFE)
def test_what_is_called_safe_stores_and_does_the_same_for_neighbouring_tables(name):
    transformer, table, rows = SAFE[name]
    assert dp.check_pipeline(transformer).safe
    fitted = clone(transformer).fit(table, LABELS)
    said, others = state(fitted), _dense(fitted.transform(table))[1:]
    for row in rows:
        neighbour = replaced(table, row)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            again = clone(transformer).fit(neighbour, LABELS)
        assert state(again) == said, row
        assert not heard
        np.testing.assert_array_equal(_dense(again.transform(neighbour))[1:], others)


def _dense(rows):
    return np.asarray(rows.todense() if hasattr(rows, "todense") else rows, dtype=float)


def test_every_rule_has_an_example_that_was_tried():
    untried = set(RULES) - set(SAFE)
    assert untried == {"SelectFromModel", "TransformedTargetRegressor"}  # they fit an estimator; below


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, _ in all_estimators("transformer") if name not in SLOW])
def test_every_transformer_with_its_defaults_is_called_unsafe_if_and_only_if_a_record_shows(name):
    kind = dict(all_estimators("transformer"))[name]
    seeded = {"random_state": 0} if "random_state" in inspect.signature(kind).parameters else {}
    if name.endswith("RandomProjection"):
        seeded["n_components"] = 2  # the default needs more columns
    try:
        transformer = kind(**seeded)
    except TypeError:
        pytest.skip("contains other estimators")
    table, rows, targets = NUMBERS, [*NUMBER_ROWS, [np.nan] * 4], LABELS
    if name in ONE_COLUMN:
        table, rows = NUMBERS[:, 0], [50.0]
    elif name in TARGETS_ONLY:
        table, rows, targets = LABELS, LABEL_ROWS, None
    elif name in TWO_TARGETS:
        targets = NUMBERS[:, :2]
    elif name == "KernelCenterer":
        table, rows = NUMBERS @ NUMBERS.T, [np.zeros(N)]
    elif name == "DictVectorizer":
        table, rows = DICTS, DICT_ROWS
    elif name == "MultiLabelBinarizer":
        table, rows, targets = [["a"]] * N, [["b"]], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [_fitted(clone(transformer), replaced(table, row), targets) for row in (table[0], *rows)]
    shows = any(fit not in (fits[0], None) for fit in fits)
    if name == "PatchExtractor":
        assert not shows
        assert "several rows of one record" in first(dp.check_pipeline(transformer)).reason
        return
    assert dp.check_pipeline(transformer).safe == (not shows)


def _fitted(transformer, table, targets):
    """Return the state of a fit, None if it refuses missing cells."""
    try:
        return state(transformer.fit(table) if targets is None else transformer.fit(table, targets))
    except ValueError:
        if not np.isnan(np.asarray(table, dtype=float)).any():
            raise
        return None


UNSAFE = {
    "levels from the data": OneHotEncoder(handle_unknown="ignore"),
    "unknown levels raise": OneHotEncoder(categories=[["a", "b"]]),
    "rare levels": OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore", min_frequency=2),
    "codes from the data": OrdinalEncoder(),
    "mean imputation": SimpleImputer(),
    "indicators": SimpleImputer(
        strategy="constant", fill_value=0, keep_empty_features=True, add_indicator=True
    ),
    "scale": RBFSampler(gamma="scale"),
    "knots": SplineTransformer(),
    "vocabulary": CountVectorizer(),
    "inverse document frequencies": TfidfVectorizer(vocabulary=["word"]),
    "columns by type": ColumnTransformer(
        [("numbers", "passthrough", make_column_selector(dtype_include=float))], sparse_threshold=0
    ),
    "storage by zeros": ColumnTransformer([("first", "passthrough", [0])]),
    "remainder": ColumnTransformer(
        [("first", "passthrough", [0])], remainder=StandardScaler(), sparse_threshold=0
    ),
    "memory": Pipeline([("model", LOGISTIC)], memory="cache"),
    "inside a union": FeatureUnion([("rows", Normalizer()), ("pca", PCA())]),
    "target": TransformedTargetRegressor(
        dp.PrivateLasso(epsilon=1.0), transformer=StandardScaler(), check_inverse=False
    ),
    "target with a check": TransformedTargetRegressor(
        dp.PrivateLasso(epsilon=1.0), func=np.log1p, inverse_func=np.expm1
    ),
    "grid": GridSearchCV(LOGISTIC, {"epsilon": [1.0]}),
    "calibration": CalibratedClassifierCV(LOGISTIC),
    "stacking": StackingClassifier([("one", LOGISTIC)]),
    "voting": VotingClassifier([("one", LOGISTIC)]),
    "bagging": BaggingClassifier(LOGISTIC),
    "seeded": clone(LOGISTIC).set_params(random_state=0),
    "seeded search": dp.PrivateSearchCV(LOGISTIC, {"epsilon": [1.0]}, random_state=1),
    "searched pipeline": dp.PrivateSearchCV(make_pipeline(StandardScaler(), LOGISTIC), {}),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_steps_are_found_wherever_they_are(name):
    report = dp.check_pipeline(make_pipeline(UNSAFE[name], LOGISTIC))
    assert not report.safe
    assert all(step.reason for step in report.unsafe)
    assert any(step.verdict == "reads records" for step in report.unsafe)


def test_searches_point_to_the_private_one():
    report = dp.check_pipeline(GridSearchCV(make_pipeline(StandardScaler(), LOGISTIC), {}))
    assert [step.kind for step in report.unsafe] == ["GridSearchCV", "StandardScaler"]
    assert "PrivateSearchCV" in report.unsafe[0].reason
    assert report.unsafe[1].place == "gridsearchcv.estimator.standardscaler"


@pytest.mark.parametrize(
    "step",
    [
        TransformedTargetRegressor(
            dp.PrivateLasso(epsilon=1.0), func=np.log1p, inverse_func=np.expm1, check_inverse=False
        ),
        SelectFromModel(dp.PrivateLasso(epsilon=1.0)),
        dp.PrivateSearchCV(LOGISTIC, {"epsilon": [1.0]}),
    ],
    ids=lambda step: type(step).__name__,
)
def test_what_only_uses_a_private_estimator_is_safe(step):
    assert dp.check_pipeline(step).safe


class OwnScaler(TransformerMixin, BaseEstimator):
    """A transformer of the user's."""

    def fit(self, X, y=None):
        """Store the mean."""
        self.mean_ = X.mean()
        return self


class OwnNormalizer(Normalizer):
    """A subclass may do anything."""


@pytest.mark.parametrize(
    "step", [OwnScaler(), OwnNormalizer(), FunctionTransformer(lambda X: X - X.mean(axis=0))]
)
def test_what_cannot_be_known_is_said_to_be_unknown(step):
    (found,) = dp.check_pipeline(step).steps
    assert found.verdict == "cannot know"
    assert not found.safe
    assert "only" in found.reason


@pytest.mark.parametrize("value", ["pipeline", MinMaxScaler, None])
def test_what_is_no_pipeline_is_refused(value):
    with pytest.raises(TypeError, match="must be an estimator"):
        dp.check_pipeline(value)
