"""Examples in the help of each command of `jem-tf`."""

EXAMPLES = {
    "": """\
        jem-tf demo                                  the whole story in minutes
        jem-tf train digits --out runs/digits        train on the embedded digits
        jem-tf evaluate runs/digits                  accuracy, calibration, OOD detection
        jem-tf sample runs/digits --label 3          look at what it has learned""",
    "train": """\
        jem-tf train digits
        jem-tf train fashion_mnist --data-dir ~/tfds --out runs/fashion
        jem-tf train photos/ --image-size 32         a folder of images for each class
        jem-tf train table.npz                       x, y or x_train, y_train, x_test, y_test
        jem-tf train irises.csv --label species      a table
        jem-tf train digits --objective cross_entropy --out runs/baseline
        jem-tf train digits --set ema=none --set backbone_options.width=64 --out runs/wide
        jem-tf train --recipe runs/wide/recipe.toml --out runs/again    the same run again
        jem-tf train photos/ --from mine.keras       begin with a trained classifier
        jem-tf train --resume runs/digits            after Ctrl-C, a crash or a power cut""",
    "evaluate": """\
        jem-tf evaluate runs/digits                  runs/digits/report/report.html
        jem-tf evaluate runs/digits --baseline runs/baseline --ood noise patches
        jem-tf evaluate runs/fashion --ood mnist --budget full --data-dir ~/tfds
        jem-tf evaluate saved_models/digits --dataset digits --attacks linf
        jem-tf evaluate grpc://localhost:8500/digits --dataset digits""",
    "score": """\
        jem-tf score saved_models/digits photos/ --out scores.parquet --report
        jem-tf score runs/irises new.csv --id plant --out scores.csv
        jem-tf score runs/irises known.parquet --label species --out scores.jsonl
        jem-tf score grpc://localhost:8500/digits seven.png eight.jpg --out scores.csv
        jem-tf score saved_models/digits photos/ --out scores.parquet --engine ray --workers 8""",
    "sample": """\
        jem-tf sample runs/digits --out samples.png
        jem-tf sample runs/digits --label 3 --count 100 --steps 200 --seed 1""",
    "loglik": """\
        jem-tf loglik runs/digits
        jem-tf loglik runs/digits --steps 10000      slower and more accurate""",
    "import": """\
        jem-tf import CIFAR10_MODEL.pt --arch wrn-28-10 --out runs/published
        jem-tf import jempp.pt --arch wrn-28-10 --dataset cifar100
        jem-tf evaluate runs/published --data-dir ~/tfds""",
    "export": """\
        jem-tf export runs/digits                    saved_models/digits/1, 2, 3, ...
        jem-tf export mine.keras --calibrate photos/  any Keras classifier
        jem-tf export runs/digits --tflite           with assets.extra/model.tflite for phones
        jem-tf export runs/cifar10 --pytorch jem.pt  for the JEM authors' code
        jem-tf export runs/digits --out /models/digits --refine-steps 5""",
    "inspect": "        jem-tf inspect saved_models/digits",
    "serve": """\
        jem-tf serve saved_models/digits             gRPC at 8500, REST and a page at 8501
        jem-tf serve saved_models/digits --enable-batching --port 9000
        jem-tf serve --model_config_file=models.config --rest_api_port=8501""",
    "gateway": """\
        jem-tf gateway --upstream serving:8500 --upstream-rest serving:8501
        curl localhost:8501/monitoring/prometheus/metrics      jem_tf:ood_rate""",
    "load": """\
        jem-tf load --model digits                   gRPC at localhost:8500
        jem-tf load --model digits --address http://localhost:8501 --clients 1 8 32""",
    "predict": """\
        jem-tf predict seven.png --model digits
        jem-tf predict *.jpg --model digits --address http://localhost:8501 --json""",
    "recipes": "        jem-tf recipes",
    "demo": "        jem-tf demo --out runs/demo",
}
