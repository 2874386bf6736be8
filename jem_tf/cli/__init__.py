"""What each command of `jem-tf` does: calls the library, prints.

Not here: flags and their help (`jem_tf_cli/`).
"""
