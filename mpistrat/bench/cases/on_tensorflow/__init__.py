"""The cases that time TensorFlow and Keras under the strategies of `mpistrat.tensorflow`."""
