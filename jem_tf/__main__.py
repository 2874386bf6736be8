"""`python -m jem_tf`: the `jem-tf` command."""

import sys

from jem_tf.cli import main

sys.exit(main())
