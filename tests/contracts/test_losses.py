"""Every loss keeps the promises of the Loss protocol."""

import itertools
import math

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.losses import (
    BoundedInfluence,
    BoundedLogistic,
    Huber,
    Quantile,
    Sigmoid,
    SmoothHinge,
    Softmax,
    Squared,
    Welsch,
    exp_basic,
)
from zoo import ALL_LOSSES, BINARY_LOSSES, REGRESSION_LOSSES, SCALAR_LOSSES

MARGINS = (0.3, 4.0)
all_losses = pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
scalar_losses = pytest.mark.parametrize("loss", SCALAR_LOSSES, ids=repr)


def targets(loss):
    if loss in BINARY_LOSSES:
        return np.array([-1.0, 1.0])
    return np.arange(3.0) if isinstance(loss, Softmax) else np.linspace(*loss.y_range, 9)


def records(loss, z_max):
    """Scores that fill [-z_max, z_max], ends included, against every kind of target."""
    if isinstance(loss, Softmax):
        scores = itertools.product(np.linspace(-z_max, z_max, 7), repeat=3)
    else:
        scores = np.linspace(-z_max, z_max, 801)
    pairs = list(itertools.product(scores, targets(loss)))
    return np.array([z for z, _ in pairs]), np.array([y for _, y in pairs])


def slopes(loss, z, y, slope=None):
    slope = slope or loss.slope
    if z.ndim == 1:
        return np.array([slope(float(a), float(b), loss.parameter) for a, b in zip(z, y, strict=True)])
    out = np.full_like(z, np.nan)
    for i in range(len(z)):
        slope(z[i], float(y[i]), loss.parameter, out[i])
    return out


def curvature(loss, z, y, h=1e-5):
    """|phi''| of each record, for several scores the spectral norm of the Hessian, by central differences."""
    if z.ndim == 1:
        return np.abs(loss.grad(z + h, y) - loss.grad(z - h, y)) / (2 * h)
    columns = [(loss.grad(z + h * e, y) - loss.grad(z - h * e, y)) / (2 * h) for e in np.eye(z.shape[1])]
    return np.linalg.norm(np.stack(columns, axis=2), 2, axis=(1, 2))


@all_losses
def test_gradient_is_the_derivative_of_the_value(loss):
    z, y = records(loss, 4.0)
    h = 1e-5
    if isinstance(loss, Quantile):
        away = np.abs(z - y) > 2 * h  # no derivative at the corner
        z, y = z[away], y[away]
    if z.ndim == 1:
        numeric = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    else:
        steps = h * np.eye(z.shape[1])
        numeric = np.column_stack([(loss.value(z + e, y) - loss.value(z - e, y)) / (2 * h) for e in steps])
    assert_allclose(loss.grad(z, y), numeric, atol=2e-5)  # smooth hinge: h / (2 width) at its corners


@all_losses
def test_slope_is_the_gradient(loss):
    z, y = records(loss, 12.0)
    # The error of a difference of an exponential and a target is relative to the exponential.
    atol = 1e-11 if loss.target in ("amounts", "shares") else 1e-14
    assert_allclose(slopes(loss, z, y), loss.grad(z, y), rtol=2e-12, atol=atol)


@all_losses
def test_compiled_slope_has_the_same_bits(loss):
    register_jitable(exp_basic)
    z, y = records(loss, 12.0)
    z, y = z[::7], y[::7]
    assert_array_equal(slopes(loss, z, y, numba.njit(loss.slope)), slopes(loss, z, y))


def test_quantile_takes_subgradient_zero_on_the_target():
    assert Quantile(0.9).slope(0.25, 0.25, 0.9) == 0
    assert Quantile(0.9).grad(np.array([0.25]), np.array([0.25])) == 0


@all_losses
def test_convex_on_chords_where_declared_and_not_elsewhere(loss):
    rng = np.random.default_rng(0)
    shape = (4000, 3) if isinstance(loss, Softmax) else 4000
    reach = max(5.0, 3 * loss.scale) if isinstance(loss, Welsch) else 5.0  # Welsch bends beyond its scale
    a, b = rng.uniform(-reach, reach, shape), rng.uniform(-reach, reach, shape)
    y = rng.choice(targets(loss), 4000)
    above = 0.5 * (loss.value(a, y) + loss.value(b, y)) - loss.value(0.5 * (a + b), y)
    if loss.convex:
        assert above.min() >= -1e-12
    else:
        assert above.min() < -1e-3


@all_losses
@pytest.mark.parametrize("z_max", MARGINS)
@pytest.mark.parametrize("ord", [1, 2, math.inf])
def test_lipschitz_constant_holds_and_is_attained(loss, z_max, ord):
    z, y = records(loss, z_max)
    steepest = np.linalg.norm(np.atleast_2d(slopes(loss, z, y).T), ord, axis=0).max()
    declared = loss.lipschitz(z_max, ord)
    assert steepest <= declared * (1 + 1e-12)
    if not (isinstance(loss, Softmax) and z_max < 1):  # softmax declares the supremum over all scores
        assert steepest >= 0.99 * declared


@all_losses
@pytest.mark.parametrize("z_max", MARGINS)
def test_smoothness_constant_holds_and_is_attained(loss, z_max):
    declared = loss.smoothness(z_max)
    z, y = records(loss, z_max)
    sharpest = curvature(loss, z, y).max()
    if isinstance(loss, Quantile):
        assert declared == math.inf
        assert sharpest > 1e4
        return
    assert sharpest <= declared * (1 + 1e-6)
    # At short margins this hinge is straight, and softmax declares the supremum over all scores.
    if not (loss in (SmoothHinge(), Softmax()) and z_max < 0.5):
        # The largest curvature of a bounded influence is that of far records, whose targets hold a length.
        far = isinstance(loss, BoundedInfluence | BoundedLogistic)
        assert sharpest >= 0.99 * (loss.usual_smoothness(z_max) if far else declared)


def test_constants_without_a_bound_on_the_scores():
    assert Squared().lipschitz(math.inf) == math.inf
    assert Huber(0.5).lipschitz(math.inf) == 0.5
    assert SmoothHinge().lipschitz(math.inf) == 1
    assert Sigmoid().smoothness(math.inf) == pytest.approx(1 / (6 * math.sqrt(3)))
    assert Welsch(0.7).lipschitz(math.inf) == pytest.approx(0.7 / math.sqrt(2 * math.e))


@all_losses
def test_finite_at_huge_scores(loss):
    huge = np.array([1e4, -1e4, 1e4, -1e4])
    z = np.column_stack([huge, -huge, 0 * huge]) if isinstance(loss, Softmax) else huge
    y = np.repeat(targets(loss)[[0, -1]], 2)
    for result in (loss.value(z, y), loss.grad(z, y), slopes(loss, z, y)):
        assert np.isfinite(result).all()
    assert_allclose(slopes(loss, z, y), loss.grad(z, y), atol=1e-12)


@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=repr)
def test_missing_binary_label_counts_for_nothing(loss):
    z = np.linspace(-50, 50, 101)
    y = np.zeros_like(z)
    for result in (loss.value(z, y), loss.grad(z, y), slopes(loss, z, y)):
        assert_array_equal(result, 0.0)


@pytest.mark.parametrize("code", [-1.0, 3.0, 0.5, -0.5, 1e9])
def test_undeclared_class_counts_for_nothing(code):
    z = np.random.default_rng(0).normal(size=(20, 3))
    y = np.full(20, code)
    loss = Softmax()
    for result in (loss.value(z, y), loss.grad(z, y), slopes(loss, z, y)):
        assert_array_equal(result, 0.0)


def test_softmax_of_two_classes_is_logistic():
    z = np.linspace(-6, 6, 25)
    (logistic,) = (loss for loss in BINARY_LOSSES if loss.name == "logistic")
    pairs = np.column_stack([np.zeros_like(z), z])
    assert_allclose(Softmax().value(pairs, np.ones_like(z)), logistic.value(z, np.ones_like(z)), atol=1e-14)
    assert_allclose(Softmax().value(pairs, np.zeros_like(z)), logistic.value(z, -np.ones_like(z)), atol=1e-14)


@scalar_losses
def test_order_of_the_norm_is_immaterial_for_one_score(loss):
    assert loss.lipschitz(2.0, 1) == loss.lipschitz(2.0, 2) == loss.lipschitz(2.0, math.inf)


def test_names_are_distinct():
    assert len({loss.name for loss in ALL_LOSSES}) == len({type(loss) for loss in ALL_LOSSES})


def test_exponential_from_basic_operations():
    x = np.linspace(-40, 40, 4001)
    assert_allclose([exp_basic(v) for v in x], np.exp(x), rtol=1e-12)
    assert exp_basic(1e300) == exp_basic(40.0)
    assert exp_basic(-1e300) == exp_basic(-40.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize(("make", "field"), [(Huber, "threshold"), (SmoothHinge, "width"), (Welsch, "scale")])
def test_shape_parameters_must_be_positive_and_finite(make, field, bad):
    with pytest.raises(ValueError, match=rf"{make.__name__} needs a finite {field} > 0; got"):
        make(bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan])
def test_quantile_must_be_inside_the_unit_interval(bad):
    with pytest.raises(ValueError, match="0 < quantile < 1; got"):
        Quantile(bad)


@pytest.mark.parametrize("loss", REGRESSION_LOSSES, ids=repr)
@pytest.mark.parametrize("bad", [(1.0, -1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_targets_need_a_finite_range(loss, bad):
    fields = {"quantile": 0.5, "threshold": 1.0, "scale": 1.0}
    given = {name: value for name, value in fields.items() if hasattr(loss, name)}
    with pytest.raises(ValueError, match="y_range must be a finite pair"):
        type(loss)(**given, y_range=bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_margin_bound_must_not_be_negative(bad):
    with pytest.raises(ValueError, match="must be >= 0; got"):
        Squared().lipschitz(bad)
    with pytest.raises(ValueError, match="must be >= 0; got"):
        Sigmoid().smoothness(bad)


def test_softmax_needs_a_norm():
    with pytest.raises(ValueError, match=r"order >= 1; got ord=0\.5"):
        Softmax().lipschitz(1.0, 0.5)
