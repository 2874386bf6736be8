"""The version, apart from the package so that it can be read without importing TensorFlow."""

VERSION = "0.1.0"
