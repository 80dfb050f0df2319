"""What runs inside the Trainer; knows TensorFlow and Keras, nothing of runners."""
