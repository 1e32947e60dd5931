"""The names by which ranks compare the variables that Keras makes."""
