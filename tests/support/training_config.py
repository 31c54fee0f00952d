"""The configuration that tests of commands train with."""

TEXT = """
data: {name: breast_cancer}
owners: {by: class, epsilon: {benign: 5, malignant: 1}, delta: 1e-4}
model: {name: logistic_regression}
plan: {method: sample, steps: 8, expected_batch: 64, clip_norm: 1, accountant: rdp}
tail: {kind: linear, fraction: 0.4}
optimizer: {name: SGD, lr: 1.0, options: {momentum: 0.5}}
key: 5
"""
