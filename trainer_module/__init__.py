"""What runs inside the Trainer; knows TensorFlow and Keras, nothing of runners."""

from stagecraft.schemas import moved

moved.install()
