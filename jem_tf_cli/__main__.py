"""`python -m jem_tf_cli`: the `jem-tf` command."""

import sys

from jem_tf_cli.command import main

sys.exit(main())
