"""Keras under parameter servers: workers run the steps of `fit`, and each batch goes to one."""
