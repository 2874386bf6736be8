"""What Keras and TensorFlow do not give us: state, randomness, replicas, cores, checkpoint files.

Nothing here knows about energies or models. Every use of a private name of Keras or TensorFlow
is in `private.py`.
"""
