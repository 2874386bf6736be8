"""Measures on arrays, or on functions from inputs to logits: one module for each question.

| module | question |
|---|---|
| `detection` | does a score separate in-distribution from out-of-distribution inputs? |
| `robustness` | how small a change of the input makes a classifier wrong? |
| `generation` | do samples look like the data? |
| `features` | in which feature space are samples compared with the data? |
| `likelihood` | what is log Z, and with it log p(x)? |

Not here: accuracy and calibration (`jem_tf/detection/calibration.py`), which exports need, too.
"""
