"""Logistic regression with a penalty, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from vit_vs_cnn.statistics.logistic import MAX_WORSE, fit_logistic_regression


def _examples(count, width, classes, seed=0):
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = np.arange(count) % classes
    scales = np.linspace(0.1, 5, width)
    return (centres[labels] + random.normal(size=(count, width)) * 1.5) * scales + 3, labels


@pytest.mark.parametrize(("count", "width"), [(97, 11), (23, 41)])
@pytest.mark.parametrize(("penalty", "weights"), [(1.0, None), (0.03, None), (0.1, (3.0, 1.0, 1.0, 0.5, 2.0))])
def test_a_fit_equals_scikit_learn(count, width, penalty, weights):
    features, labels = _examples(count, width, 5)
    held, held_labels = _examples(31, width, 5, seed=1)
    ours = fit_logistic_regression(
        features, labels, (held, held_labels), num_classes=5, penalties=[penalty], class_weights=weights
    )
    scaler = StandardScaler().fit(features)
    of_examples = np.ones(count) if weights is None else np.array(weights)[labels]
    theirs = LogisticRegression(C=1 / (penalty * of_examples.sum()), tol=1e-8, max_iter=5000)
    theirs.fit(scaler.transform(features), labels, sample_weight=of_examples)
    logits = held @ ours.weight.T + ours.bias
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, theirs.predict_proba(scaler.transform(held)), atol=2e-4)


def test_the_penalty_minimizes_the_validation_loss():
    features, labels = _examples(29, 37, 3)
    held = _examples(211, 37, 3, seed=1)
    fit = fit_logistic_regression(features, labels, held, num_classes=3)
    assert fit.losses[fit.penalty] == min(fit.losses.values())
    assert min(fit.losses) < fit.penalty < max(fit.losses)
    assert np.log10([*fit.losses]) == pytest.approx(np.arange(2, -5.5, -0.5))  # two for each power of ten
    noise = np.random.default_rng(0).permutation(labels)  # is best predicted with a strong penalty
    fit = fit_logistic_regression(features, noise, held, num_classes=3)
    assert len([penalty for penalty in fit.losses if penalty < fit.penalty]) == MAX_WORSE
    assert fit.losses[fit.penalty] == min(fit.losses.values())


def test_a_constant_feature_has_no_effect():
    features, labels = _examples(53, 7, 3)
    features[:, 4] = 2.0
    rounded = 1000 + 1e-4 * (np.arange(53) % 2)  # one value, and its rounding to float32
    features = np.column_stack([features, rounded]).astype(np.float32)
    fit = fit_logistic_regression(features, labels, (features, labels), num_classes=3)
    assert 0 < features[:, 7].std() < 1e-4
    assert not fit.weight[:, [4, 7]].any()
    assert np.isfinite(fit.bias).all()
