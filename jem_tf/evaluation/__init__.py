"""Measures of a classifier: calibration, out-of-distribution detection, quality of samples.

They take arrays or a model's public methods only, so any Keras classifier can be measured.
"""
