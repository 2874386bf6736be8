"""A few training steps of a recipe of the paper: WideResNet-28-10, batch 64, 20 sampler steps.

    python benchmarks/paper_steps.py cifar10 --data-dir ~/tfds --count 3

Prints losses, time and peak memory of each step. It shows that the recipe runs and what it needs; a
whole training needs accelerators.
"""

import argparse
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="cifar10, cifar100 or svhn_cropped")
    parser.add_argument("--data-dir", help="directory of TensorFlow Datasets")
    parser.add_argument("--count", type=int, default=3, help="training steps")
    options = parser.parse_args()
    import keras
    from contender import peak_mb

    import jem_tf
    from jem_tf import callbacks, data
    from jem_tf.training import recipes

    jem_tf.side_by_side()
    dataset = data.load(options.dataset, options.data_dir)
    recipe = recipes.get(recipes.default_for(dataset))
    model = recipe.model(dataset, seed=0)
    model.compile(recipe.optimizer(-(-len(dataset.train) // recipe.batch_size)))
    print(f"{recipe.about}\n{model.backbone.count_params():,} weights, batch {recipe.batch_size}")
    ends = []

    def report(batch: int, logs: dict[str, float]) -> None:
        ends.append(time.perf_counter())
        duration = f"{ends[-1] - ends[-2]:.0f} s" if batch else "includes the start"
        print(f"step {batch + 1} ({duration}): {logs}, {peak_mb():.0f} MB", flush=True)
        if not all(map(math.isfinite, logs.values())):
            raise SystemExit("A loss is non-finite.")

    model.fit(
        dataset.epochs(recipe.batch_size, 0, 0, recipe.augments_rows),
        steps_per_epoch=options.count,
        shuffle=False,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(on_train_batch_end=report),
            callbacks.DivergenceGuard(),
        ],
    )


if __name__ == "__main__":
    main()
