"""Code that runs inside the Trainer; imports TensorFlow and Keras, but no runners."""
