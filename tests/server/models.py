"""A SavedModel with a signature for each rule of the protocol.

    python tests/server/models.py DIRECTORY [VERSION]

writes what a real TF Serving needs to run the conformance suite (see CONTRIBUTING.md).
"""

import sys

import tensorflow as tf

F, N, S, B = tf.float32, tf.int64, tf.string, tf.bool


def spec(shape, dtype, name):
    return tf.TensorSpec(shape, dtype, name=name)


def write(base, version=1):
    """Version `version` of the model `rules` below `base`."""
    root = tf.Module()
    root.weight = tf.Variable([[1.0], [2.0]])
    features = {"a": tf.io.FixedLenFeature([], F, 0.0), "b": tf.io.FixedLenFeature([], F, 0.0)}

    def half(x):
        rows = tf.shape(x)[0]
        return {"y": x @ root.weight, "version": tf.fill([rows], tf.constant(version, N))}

    def two(a, b):
        return {"total": a + tf.cast(b, F), "product": a * tf.cast(b, F)}

    def echo(s, f, i):
        return {"s": s, "s_bytes": s, "f": f, "i": i}

    def picky(x):
        checked = tf.debugging.assert_greater_equal(x, 0.0, message="x is negative")
        with tf.control_dependencies([checked]):
            return {"root": tf.sqrt(x)}

    def slow(x, loops):
        _, y = tf.while_loop(
            lambda i, _: i < loops[0],
            lambda i, y: (i + 1, tf.tanh(y @ tf.ones([300, 300]) / 300.0)),
            (tf.constant(0, N), tf.ones([300, 300])),
        )
        return {"y": x + 0.0 * tf.reduce_mean(y)}

    def parsed(inputs):
        found = tf.io.parse_example(inputs, features)
        return tf.stack([found["a"], found["b"]], axis=1)

    def classify(inputs):
        x = parsed(inputs)
        names = tf.constant([b"low", b"high"])
        return {"classes": tf.tile(names[None], [tf.shape(x)[0], 1]), "scores": tf.nn.softmax(x)}

    def regress(inputs):
        return {"outputs": tf.reduce_sum(parsed(inputs), axis=1, keepdims=True)}

    signatures = {
        "serving_default": (half, spec([None, 2], F, "x")),
        "two": (two, spec([None], F, "a"), spec([None], N, "b")),
        "echo": (echo, spec([None], S, "s"), spec([None], B, "f"), spec([None], tf.int32, "i")),
        "double": (lambda d: {"d": 2.0 * d}, spec([None], tf.float64, "d")),
        "scalar": (lambda x: {"y": 2.0 * x}, spec([], F, "x")),
        "sum": (lambda x: {"y": tf.reduce_sum(x), "z": x}, spec([None], F, "x")),
        "log": (lambda x: {"y": tf.math.log(x)}, spec([None], F, "x")),
        "ragged": (lambda x: {"y": tf.reduce_sum(x, 1)}, spec([None, None], F, "x")),
        "picky": (picky, spec([None], F, "x")),
        "slow": (slow, spec([None], F, "x"), spec([None], N, "loops")),
        "verdict": (lambda x: {"is_ood": x > 0.0}, spec([None], F, "x")),
        "classify": (classify, spec([None], S, "inputs")),
        "regress": (regress, spec([None], S, "inputs")),
    }

    def concrete(method, *specs):
        call = tf.function(lambda **named: method(*(named[s.name] for s in specs)))
        return call.get_concrete_function(**{s.name: s for s in specs})

    made = {name: concrete(*parts) for name, parts in signatures.items()}
    tf.saved_model.save(root, f"{base}/{version}", signatures=made)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
