"""Cifar10ExampleGen: converts CIFAR archives, or a generated sample, to tf.Examples in shards."""
