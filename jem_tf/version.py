"""The version, apart from the package so that it can be read without importing TensorFlow."""

VERSION = "0.2.0.dev0"
