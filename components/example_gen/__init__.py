"""Cifar10ExampleGen: CIFAR archives, or a generated sample, to checked tf.Examples in shards."""
