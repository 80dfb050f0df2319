"""The cost model of computation and communication on accelerators."""
