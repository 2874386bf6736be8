"""SavedModels for the tests: one with a signature for each rule of the protocol, and a detector.

    python tests/server/models.py DIRECTORY [VERSION]

writes the model that a real TF Serving must serve for the conformance tests (serving/README.md).
"""

import sys

import tensorflow as tf

FLOAT, INT, STRING, BOOL = tf.float32, tf.int64, tf.string, tf.bool


def spec(shape, dtype, name):
    return tf.TensorSpec(shape, dtype, name=name)


def write_rules(base, version=1, names=()):
    """Write a version of the model `rules` below `base`; only the signatures `names`, if any."""
    root = tf.Module()
    root.weight = tf.Variable([[1.0], [2.0]])
    signatures = {**_basic_signatures(root, version), **_example_signatures()}

    def concrete(method, *specs):
        call = tf.function(lambda **named: method(*(named[s.name] for s in specs)))
        return call.get_concrete_function(**{s.name: s for s in specs})

    functions = {name: concrete(*signatures[name]) for name in names or signatures}
    tf.saved_model.save(root, f"{base}/{version}", signatures=functions)


def _basic_signatures(root, version):
    def half(x):
        rows = tf.shape(x)[0]
        return {"y": x @ root.weight, "version": tf.fill([rows], tf.constant(version, INT))}

    def two(a, b):
        return {"total": a + tf.cast(b, FLOAT), "product": a * tf.cast(b, FLOAT)}

    def echo(s, f, i):
        return {"s": s, "s_bytes": s, "f": f, "i": i}

    def picky(x):
        check = tf.debugging.assert_greater_equal(x, 0.0, message="x is negative")
        with tf.control_dependencies([check]):
            return {"root": tf.sqrt(x)}

    def slow(x, loops):
        _, y = tf.while_loop(
            lambda i, _: i < loops[0],
            lambda i, y: (i + 1, tf.tanh(y @ tf.ones([300, 300]) / 300.0)),
            (tf.constant(0, INT), tf.ones([300, 300])),
        )
        return {"y": x + 0.0 * tf.reduce_mean(y)}

    return {
        "serving_default": (half, spec([None, 2], FLOAT, "x")),
        "two": (two, spec([None], FLOAT, "a"), spec([None], INT, "b")),
        "echo": (
            echo,
            spec([None], STRING, "s"),
            spec([None], BOOL, "f"),
            spec([None], tf.int32, "i"),
        ),
        "double": (lambda d: {"d": 2.0 * d}, spec([None], tf.float64, "d")),
        "scalar": (lambda x: {"y": 2.0 * x}, spec([], FLOAT, "x")),
        "sum": (lambda x: {"y": tf.reduce_sum(x), "z": x}, spec([None], FLOAT, "x")),
        "log": (lambda x: {"y": tf.math.log(x)}, spec([None], FLOAT, "x")),
        "ragged": (lambda x: {"y": tf.reduce_sum(x, 1)}, spec([None, None], FLOAT, "x")),
        "picky": (picky, spec([None], FLOAT, "x")),
        "slow": (slow, spec([None], FLOAT, "x"), spec([None], INT, "loops")),
        "half_plus_two": (lambda x: {"y": 0.5 * x + 2.0}, spec([None, 1], FLOAT, "x")),
        "word": (lambda word: {"word": word, "word_bytes": word}, spec([], STRING, "word")),
        "verdict": (lambda x: {"is_ood": x > 0.0}, spec([None], FLOAT, "x")),
    }


def _example_signatures():
    features = {name: tf.io.FixedLenFeature([], FLOAT, 0.0) for name in ("a", "b")}

    def parse(inputs):
        values = tf.io.parse_example(inputs, features)
        return tf.stack([values["a"], values["b"]], axis=1)

    def classify(inputs):
        x = parse(inputs)
        names = tf.constant([b"low", b"high"])
        return {"classes": tf.tile(names[None], [tf.shape(x)[0], 1]), "scores": tf.nn.softmax(x)}

    def regress(inputs):
        return {"outputs": tf.reduce_sum(parse(inputs), axis=1, keepdims=True)}

    scores = lambda inputs: tf.nn.softmax(parse(inputs))  # noqa: E731
    methods = {
        "classify": classify,
        "regress": regress,
        "three outputs": lambda inputs: {**classify(inputs), "more": scores(inputs)},
        "number classes": lambda inputs: {"classes": scores(inputs)},
        "flat scores": lambda inputs: {"scores": scores(inputs)[:, 0]},
        "uneven": lambda inputs: {**classify(inputs), "classes": inputs[:, None]},
        "wide": lambda inputs: {"outputs": parse(inputs)},
        "integers": lambda inputs: {"outputs": tf.cast(parse(inputs)[:, 0], INT)},
        "one row": lambda inputs: {"outputs": parse(inputs)[:1, 0]},
    }
    return {name: (method, spec([None], STRING, "inputs")) for name, method in methods.items()}


def write_judge(base):
    """Write the model `judge`, for which every row with a negative value is OOD."""

    @tf.function(input_signature=[spec([None, 2], FLOAT, "inputs")])
    def judge(inputs):
        is_ood = tf.reduce_min(inputs, 1) < 0
        percentile = tf.where(is_ood, 1.0, 50.0)
        return {"is_ood": is_ood, "percentile": percentile, "sum": tf.reduce_sum(inputs, 1)}

    module = tf.Module()
    module.judge = judge
    signatures = {"serving_default": judge, "again": judge}
    tf.saved_model.save(module, f"{base}/1", signatures=signatures)


if __name__ == "__main__":
    write_rules(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
